#!/usr/bin/env bash
# Prints the nvcc to compile the kernels with: that of the PATH, or of NVIDIA's wheels on PyPI, fetched once (105 MB).
# usage: cuda-toolkit.sh CACHE
set -euo pipefail
if found=$(command -v nvcc) && "$found" --version | grep -q 'release 13\.'; then
    echo "$found"
    exit
fi
version=13.0
folder=$1/cuda/$version
nvcc=$folder/nvidia/cu13/bin/nvcc
if [ ! -x "$nvcc" ]; then
    echo "fetching CUDA $version's compiler from PyPI (once, 105 MB)" >&2
    mkdir -p "$1/cuda"
    work=$(mktemp -d "$1/cuda/fetch.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    python3 -m pip download -q --no-deps --disable-pip-version-check -d "$work" \
        "nvidia-cuda-nvcc==$version.*" "nvidia-nvvm==$version.*" "nvidia-cuda-crt==$version.*" \
        "nvidia-cuda-runtime==$version.*" "nvidia-cuda-cccl==$version.*" >&2 || {
        echo "pdserve: nvcc 13 is not on the PATH, and pip cannot download NVIDIA's wheels." >&2
        exit 1
    }
    for wheel in "$work"/*.whl; do python3 -m zipfile -e "$wheel" "$work/root"; done
    chmod +x "$work"/root/nvidia/cu13/bin/* "$work"/root/nvidia/cu13/nvvm/bin/*
    rm -rf "$folder"
    mv "$work/root" "$folder"
fi
realpath "$nvcc"
