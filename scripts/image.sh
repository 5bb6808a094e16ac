#!/usr/bin/env bash
# Assembles the container image from Debian packages and release binaries, without a registry or a daemon:
# the root file system that the Dockerfile builds on distroless. The same inputs give the same bytes.
# usage: image.sh FOLDER_WITH_BINARIES OUTPUT_FOLDER     SOURCE_DATE_EPOCH: time of every file (0)
set -euo pipefail
bin=$1 out=$2
binaries=(pd-agent pd-router pd-operator pd-fetch)
# The last four are what RDMA NICs are spoken to by, opened at run time.
packages=(libc6 libgcc-s1 ca-certificates libibverbs1 ibverbs-providers libnl-3-200 libnl-route-3-200)
epoch=${SOURCE_DATE_EPOCH:-0}
fail() { printf 'pdserve: %s\n' "$@" >&2; exit 1; }

for tool in apt-get dpkg-deb strip ldd sha256sum; do
    command -v "$tool" >/dev/null || fail "make image needs $tool: run it on Debian with binutils installed." \
        "Anywhere else: docker build -t pdserve:$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml) ."
done
# libgcc's copyright lies in a package that is named after gcc's version.
packages+=($(apt-cache show --no-all-versions libgcc-s1 | grep -o 'gcc-[0-9]*-base' | sort -u))
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
arch=$(dpkg --print-architecture)
created=$(date -u -d "@$epoch" +%Y-%m-%dT%H:%M:%SZ)
export LC_ALL=C
umask 022
mkdir -p "$out"
work=$(mktemp -d "$out/.image.XXXXXX")
trap 'rm -rf "$work"' EXIT
base=$work/base programs=$work/programs oci=$work/oci
mkdir -p "$work/packages" "$base"/{etc/ssl/certs,home/nonroot,tmp,usr/lib,usr/lib64,var/lib/dpkg/status.d} \
    "$programs/usr/local/bin" "$oci/blobs/sha256"

# --- layer 1: libraries, certificates, the user -------------------------------------------------

ln -s usr/lib usr/lib64 "$base"
chmod 1777 "$base/tmp"
(cd "$work/packages" && apt-get download -qq -o APT::Sandbox::User=root "${packages[@]}") ||
    fail "apt-get could not download ${packages[*]}; its message is above. Try apt-get update first."
for deb in "$work/packages"/*.deb; do
    dpkg-deb --fsys-tarfile "$deb" >"$work/package.tar"
    tar -x -f "$work/package.tar" -C "$base" --keep-directory-symlink --wildcards \
        --exclude='*/gconv' --exclude='./usr/share/doc/*/[!c]*' --exclude='*/changelog*' --exclude='./usr/share/lintian' \
        --exclude='./usr/share/man' --exclude='./usr/sbin' --exclude='./etc/ca-certificates'
    # Scanners find packages here, as in distroless.
    dpkg-deb -f "$deb" >"$base/var/lib/dpkg/status.d/$(dpkg-deb -f "$deb" Package)"
done
cat "$base"/usr/share/ca-certificates/*/*.crt >"$base/etc/ssl/certs/ca-certificates.crt"
rm -r "$base/usr/share/ca-certificates"
printf '%s\n' root:x:0:0:root:/root:/sbin/nologin nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin >"$base/etc/passwd"
printf '%s\n' root:x:0: nonroot:x:65532: >"$base/etc/group"
echo 'hosts: files dns' >"$base/etc/nsswitch.conf"

# --- layer 2: the programs ----------------------------------------------------------------------

for name in "${binaries[@]}"; do
    [ -x "$bin/$name" ] || fail "$bin/$name is missing: run make binaries."
    strip -o "$programs/usr/local/bin/$name" "$bin/$name"
    chmod 0755 "$programs/usr/local/bin/$name"
    while read -r library; do
        [ -e "$base/$library" ] || fail "$name needs $library, which no package of ${packages[*]} holds: add its package."
    done < <(ldd "$bin/$name" | grep -o '/lib[^ ]*')
done

# --- archive ------------------------------------------------------------------------------------

pack() { # FOLDER: a tar of what is in it, in one order, at one time, all root's
    (cd "$1" && tar -c --sort=name --format=gnu --mtime="@$epoch" --owner=0 --group=0 --numeric-owner -- *)
}
digest() { sha256sum "$1" | cut -d' ' -f1; }
blob() { # FILE: moves it among the blobs, prints its descriptor's fields
    local sha
    sha=$(digest "$1")
    printf '"digest":"sha256:%s","size":%s' "$sha" "$(stat -c %s "$1")"
    mv "$1" "$oci/blobs/sha256/$sha"
}
layers='' diff_ids='' files=''
for layer in base programs; do
    pack "$work/$layer" >"$work/$layer.tar"
    diff_ids+=",\"sha256:$(digest "$work/$layer.tar")\""
    gzip -n -9 "$work/$layer.tar"
    files+=",\"blobs/sha256/$(digest "$work/$layer.tar.gz")\""
    layers+=",{\"mediaType\":\"application/vnd.oci.image.layer.v1.tar+gzip\",$(blob "$work/$layer.tar.gz")}"
done
labels="\"org.opencontainers.image.title\":\"pdserve\",\"org.opencontainers.image.version\":\"$version\",\
\"org.opencontainers.image.description\":\"Prefill and decode of large language models on separate GPUs (linux/$arch)\",\
\"org.opencontainers.image.licenses\":\"Apache-2.0\",\"org.opencontainers.image.created\":\"$created\""
cat >"$work/config" <<JSON
{"architecture":"$arch","os":"linux","created":"$created","config":{"User":"65532:65532","WorkingDir":"/",
"Env":["PATH=/usr/local/bin","SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"],"Labels":{$labels}},
"rootfs":{"type":"layers","diff_ids":[${diff_ids#,}]}}
JSON
config=$(blob "$work/config")
cat >"$work/manifest" <<JSON
{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json",
"config":{"mediaType":"application/vnd.oci.image.config.v1+json",$config},"layers":[${layers#,}],"annotations":{$labels}}
JSON
cat >"$oci/index.json" <<JSON
{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[{
"mediaType":"application/vnd.oci.image.manifest.v1+json",$(blob "$work/manifest"),
"platform":{"architecture":"$arch","os":"linux"},"annotations":{
"io.containerd.image.name":"docker.io/library/pdserve:$version","org.opencontainers.image.ref.name":"$version"}}]}
JSON
echo '{"imageLayoutVersion":"1.0.0"}' >"$oci/oci-layout"
# What docker load reads.
config=${config#*sha256:}
echo "[{\"Config\":\"blobs/sha256/${config%%\"*}\",\"RepoTags\":[\"pdserve:$version\"],\"Layers\":[${files#,}]}]" >"$oci/manifest.json"

archive=$out/pdserve-$version.tar
pack "$oci" >"$work/archive"
mv "$work/archive" "$archive"
mb() { awk -v bytes="$1" 'BEGIN { printf "%.1f MB", bytes / 1e6 }'; }
printf '%s: pdserve:%s for %s, %s compressed, %s unpacked\n' "$archive" "$version" "$arch" \
    "$(mb "$(stat -c %s "$archive")")" "$(mb "$(du -sbc "$base" "$programs" | tail -n1 | cut -f1)")"
for deb in "$work/packages"/*.deb; do dpkg-deb --showformat='  ${Package} ${Version}\n' -W "$deb"; done
