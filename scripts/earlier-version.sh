#!/usr/bin/env bash
# Makes the image and charts of an earlier commit, once, for the proof of upgrades, and prints their folder: charts/ and
# image.tar, whose tag is `earlier`.
# usage: earlier-version.sh COMMIT CACHE
set -euo pipefail
cd "$(dirname "$0")/.."
fail() { printf 'pdserve: %s\n' "$@" >&2; exit 1; }
[ $# -eq 2 ] || fail "usage: earlier-version.sh COMMIT CACHE"
commit=$(git rev-parse --verify --quiet "$1^{commit}") || fail "$1 is no commit of this repository."
folder=$2/earlier/$commit
if [ ! -d "$folder" ]; then
    mkdir -p "$2/earlier"
    work=$(mktemp -d "$2/earlier/.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    echo "building $1 (once)" >&2
    mkdir "$work/source" "$work/made"
    git archive "$commit" | tar -x -C "$work/source"
    cd "$work/source"
    env -u CARGO_TARGET_DIR -u MAKEFLAGS make --no-print-directory binaries CUDA=0 >&2
    # Its own version has the name of ours.
    sed -i 's/^version = ".*"/version = "earlier"/' Cargo.toml
    scripts/image.sh target/release "$work/image" >&2
    mv "$work"/image/pdserve-*.tar "$work/made/image.tar"
    mv charts "$work/made"
    mv "$work/made" "$folder"
fi
echo "$folder"
