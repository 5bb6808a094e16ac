#!/usr/bin/env bash
# Prints the libtorch to build the feature tch with: $LIBTORCH, or the CPU's part of PyTorch's wheel on PyPI, fetched
# once (544 MB; 0.5 GB of it are kept, unpacked). usage: libtorch.sh CACHE
set -euo pipefail
if [ -n "${LIBTORCH:-}" ]; then
    echo "$LIBTORCH"
    exit
fi
version=2.11.0
folder=$1/libtorch/$version
if [ ! -f "$folder/torch/lib/libtorch_cpu.so" ]; then
    echo "fetching PyTorch $version from PyPI (once, 544 MB)" >&2
    mkdir -p "$1/libtorch"
    work=$(mktemp -d "$1/libtorch/fetch.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    # What the wheel is named after is Python's version, of which libtorch knows nothing: any will do. The wheel is
    # CUDA's, whose libtorch_cpu.so loads two small libraries of CUDA, and needs no driver.
    python3 -m pip download -q --no-deps --disable-pip-version-check --only-binary=:all: --python-version 3.12 \
        -d "$work" "torch==$version" "nvidia-cuda-runtime==13.0.*" "nvidia-cuda-cupti==13.0.*" >&2 || {
        echo "pdserve: pip cannot download torch $version; set LIBTORCH to the folder of one (with lib and include)." >&2
        exit 1
    }
    for wheel in "$work"/*.whl; do python3 -m zipfile -e "$wheel" "$work/root"; done
    mkdir -p "$work/kept/torch" "$work/kept/nvidia/cu13/lib"
    # Without libtorch_cuda.so nothing is linked with CUDA, and its two gigabytes of libraries are not needed.
    (cd "$work/root/torch/lib" && rm -rf libtorch_cuda* libtorch_nvshmem* libtorch_python* libc10_cuda* libcaffe2* libshm*)
    mv "$work"/root/torch/{lib,include} "$work/kept/torch"
    mv "$work"/root/nvidia/cu13/lib/lib{cudart,cupti}.so.13 "$work/kept/nvidia/cu13/lib"
    echo "$version" >"$work/kept/torch/build-version"
    rm -rf "$folder"
    mv "$work/kept" "$folder"
fi
realpath "$folder/torch"
