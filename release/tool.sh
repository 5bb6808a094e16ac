#!/usr/bin/env bash
# Prints where helm or cosign is: on the PATH, or built from its Go module once.
# usage: release/tool.sh helm|cosign     CACHE: folder that keeps what was built (.cache)
set -euo pipefail
cd "$(dirname "$0")/.."
fail() { printf 'pdserve: %s\n' "$@" >&2; exit 1; }
case ${1:-} in
helm)
    module=helm.sh/helm/v4
    # The one that the charts are tested with.
    version=$(grep -A1 "\"$module\"" e2e/src/kube/versions.rs | sed -n 's/.*version: "\(.*\)".*/\1/p') ;;
cosign) module=github.com/sigstore/cosign/v2 version=v2.6.5 ;;
*) fail "usage: release/tool.sh helm|cosign" ;;
esac
type -P "$1" && exit
folder=${CACHE:-$PWD/.cache}/release/$1-$version
if [ ! -x "$folder/$1" ]; then
    command -v go >/dev/null || fail "$1 is neither on the PATH nor can it be built: there is no Go."
    echo "building $1 $version from its Go module (once)" >&2
    GOBIN=$folder CGO_ENABLED=0 go install -trimpath -ldflags='-s -w' "$module/cmd/$1@$version" >&2
fi
echo "$folder/$1"
