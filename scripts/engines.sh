#!/usr/bin/env bash
# The engines of others, once, in a folder of their own: SGLang in a virtual environment, a library that stands for CUDA's
# driver, and SmolLM2 as a Hugging Face folder.
# usage: engines.sh FOLDER GGUF
set -euo pipefail
folder=$1 gguf=$2
here=$(cd "$(dirname "$0")/.." && pwd)
sglang=0.5.23
needs_gib=25
fail() { printf 'pdserve: %s\n' "$@" >&2; exit 1; }

mkdir -p "$folder"
if [ ! -e "$folder/sglang/installed-$sglang" ]; then
    free=$(df --output=avail --block-size=1G "$folder" | tail -1)
    [ "$free" -ge "$needs_gib" ] || fail "SGLang takes 10 GB, and its installation more for a while:" \
        "$folder has ${free} GiB free, and wants $needs_gib. Give another folder by ENGINES=FOLDER."
    command -v cc >/dev/null || fail "a C compiler is needed. On Debian: apt-get install gcc"
    echo "installing SGLang $sglang into $folder (10 GB, about five minutes)"
    began=$SECONDS
    rm -rf "$folder/sglang"
    python3 -m venv "$folder/sglang"
    "$folder/sglang/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir \
        "sglang==$sglang" mooncake-transfer-engine-non-cuda accelerate gguf
    touch "$folder/sglang/installed-$sglang"
    echo "installed: $(du -sh "$folder/sglang" | cut -f1) in $((SECONDS - began)) s"
fi
# Mooncake's module links libibverbs, SGLang's kernels libnuma.
for library in libibverbs.so.1 librdmacm.so.1 libnuma.so.1; do
    ldconfig -p | grep -q "$library" || fail "$library is missing." \
        "On Debian: apt-get install libibverbs1 librdmacm1 libnuma1"
done
mkdir -p "$folder/lib"
cc -shared -fPIC -O1 -Wall -Wl,-soname,libcuda.so.1 -o "$folder/lib/libcuda.so.1" "$here/e2e/engines/libcuda.c"
if [ ! -e "$folder/smollm2/tokenizer.json" ]; then
    rm -rf "$folder/smollm2" "$folder/smollm2.new"
    "$folder/sglang/bin/python" "$here/e2e/engines/model.py" "$gguf" "$folder/smollm2.new" >/dev/null
    mv "$folder/smollm2.new" "$folder/smollm2"
fi
echo "engines ready: $folder"
