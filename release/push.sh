#!/usr/bin/env bash
# Pushes what release/make.sh made: the image, and both charts as OCI artifacts beside it.
# usage: release/push.sh OUT REGISTRY     after `skopeo login` and `helm registry login`
#
#   COSIGN_KEY, COSIGN_PASSWORD   sign the image, by its digest
#   PLAIN_HTTP=1                  for a registry without TLS, such as one on this machine
set -euo pipefail
[ $# -eq 2 ] || { echo "usage: release/push.sh OUT REGISTRY" >&2; exit 1; }
out=$(realpath "$1") registry=$2
cd "$(dirname "$0")/.."
for name in skopeo helm ${COSIGN_KEY:+cosign}; do
    command -v "$name" >/dev/null || { echo "pdserve: $name is not on the PATH" >&2; exit 1; }
done
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
image=$registry/pdserve
plain=() tls=() cosign=()
if [ -n "${PLAIN_HTTP:-}" ]; then
    plain=(--plain-http) tls=(--dest-tls-verify=false) cosign=(--allow-http-registry)
fi
digest=$(mktemp)
trap 'rm -f "$digest"' EXIT
skopeo copy "${tls[@]}" --digestfile "$digest" "oci-archive:$out/pdserve-$version-image.tar" "docker://$image:$version"
for chart in pdserve-crds pdserve; do
    helm push "${plain[@]}" "$out/$chart-$version.tgz" "oci://$registry/charts"
done
if [ -n "${COSIGN_KEY:-}" ]; then
    command cosign sign --yes --tlog-upload=false "${cosign[@]}" --key "$COSIGN_KEY" "$image@$(cat "$digest")"
fi
printf '%s\n' "$image:$version@$(cat "$digest")"
