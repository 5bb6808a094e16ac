#!/usr/bin/env bash
# Makes everything that a release consists of, up to the upload: runs on any Debian, and by no account.
# usage: release/make.sh OUT [PART...]     parts, in order: image charts manifests plugin sbom checksums signatures; all if none
#
#   BIN        folder with release binaries; if unset, they are built, with CUDA kernels
#   REGISTRY   where image and charts will be pushed: charts and manifests then ask for the image there
#   DOWNLOADS  URL under which the files will lie, for krew; default: the repository's releases
#   COSIGN_KEY, COSIGN_PASSWORD   sign SHA256SUMS with a key of `cosign generate-key-pair`; not signed if unset
#   SOURCE_DATE_EPOCH             time of every file; default: the commit's
set -euo pipefail
cd "$(dirname "$0")/.."
fail() { printf 'pdserve: %s\n' "$@" >&2; exit 1; }
[ $# -ge 1 ] || fail "usage: release/make.sh OUT [PART...]"
mkdir -p "$1"
out=$(realpath "$1")
shift
all=(image charts manifests plugin sbom checksums signatures)
parts=("${@:-${all[@]}}")
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
home=$(sed -n 's/^home: //p' charts/pdserve/Chart.yaml)
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

helm() { HELM_CACHE_HOME=$work HELM_CONFIG_HOME=$work HELM_DATA_HOME=$work "$(release/tool.sh helm)" "$@"; }
cosign() { "$(release/tool.sh cosign)" "$@"; }
binaries() { # The folder of the release binaries.
    if [ -z "${BIN:-}" ]; then
        make --no-print-directory binaries plugin CUDA=1 >&2
        BIN=$(realpath "${CARGO_TARGET_DIR:-target}")/release
    fi
    echo "$BIN"
}
pack() { # ARCHIVE FOLDER: the same bytes from the same files
    tar -c --sort=name --format=gnu --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -C "$2" . | gzip -n -9 >"$out/$1"
}
chart() { # A copy of the chart that asks for the released image.
    cp -r charts/pdserve "$work/pdserve"
    if [ -n "${REGISTRY:-}" ]; then
        sed -i "s|^  registry: \"\"|  registry: $REGISTRY|" "$work/pdserve/values.yaml"
        sed -i "s|image: pdserve:$version|image: $REGISTRY/pdserve:$version|" "$work/pdserve/Chart.yaml"
        grep -q "^  registry: $REGISTRY" "$work/pdserve/values.yaml" || fail "values.yaml has no image.registry to set."
    fi
}

# --- parts --------------------------------------------------------------------------------------

image() {
    scripts/image.sh "$(binaries)" "$work/image"
    mv "$work/image/pdserve-$version.tar" "$out/pdserve-$version-image.tar"
}

charts() {
    helm package "$work/pdserve" charts/pdserve-crds --destination "$out"
}

manifests() {
    mkdir "$work/manifests"
    cp manifests/kustomization.yaml "$work/manifests"
    sed -i "s|newName: .*|newName: ${REGISTRY:+$REGISTRY/}pdserve|" "$work/manifests/kustomization.yaml"
    cp manifests/crds.yaml manifests/operator.yaml "$work/manifests"
    pack "pdserve-$version-manifests.tar.gz" "$work/manifests"
    cp manifests/crds.yaml "$out/pdserve-$version-crds.yaml"
    sed "s|image: pdserve:|image: ${REGISTRY:+$REGISTRY/}pdserve:|" manifests/operator.yaml |
        cat manifests/crds.yaml - >"$out/pdserve-$version-install.yaml"
}

plugin() {
    local bin archive=kubectl-pd-$version-linux-amd64.tar.gz
    bin=$(binaries)
    [ -x "$bin/kubectl-pd" ] || fail "$bin/kubectl-pd is missing: run make plugin."
    mkdir "$work/plugin"
    strip -o "$work/plugin/kubectl-pd" "$bin/kubectl-pd"
    cp LICENSE "$work/plugin"
    pack "$archive" "$work/plugin"
    sed -e "s|VERSION|$version|g" -e "s|URL|${DOWNLOADS:-$home/releases/download/v$version}/$archive|" -e "s|HOMEPAGE|$home|" \
        -e "s|SHA256|$(sha256sum "$out/$archive" | cut -d' ' -f1)|" release/krew.yaml >"$out/pd.yaml"
}

sbom() {
    release/sbom.py "$out/pdserve-$version-image.tar" >"$out/pdserve-$version.spdx.json"
}

checksums() {
    rm -f "$out"/SHA256SUMS*
    (cd "$out" && sha256sum -- *) >"$work/sums"
    mv "$work/sums" "$out/SHA256SUMS"
}

signatures() {
    if [ -z "${COSIGN_KEY:-}" ]; then
        echo "not signed: COSIGN_KEY names no key"
        return
    fi
    # By a key alone: no public log is written, and no service has to be reached.
    cosign sign-blob --yes --tlog-upload=false --key "$COSIGN_KEY" --output-signature "$out/SHA256SUMS.sig" "$out/SHA256SUMS" >/dev/null
    cosign public-key --key "$COSIGN_KEY" >"$work/key.pub"
    cosign verify-blob --insecure-ignore-tlog=true --key "$work/key.pub" --signature "$out/SHA256SUMS.sig" "$out/SHA256SUMS"
}

chart
for part in "${parts[@]}"; do
    printf '%s\n' "${all[@]}" | grep -qx "$part" || fail "there is no part $part; parts are ${all[*]}"
    printf '== %s\n' "$part"
    "$part"
done
(cd "$out" && find . -type f -printf '%10s  %P\n' | sort -k2)
