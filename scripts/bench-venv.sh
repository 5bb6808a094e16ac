#!/usr/bin/env bash
# Prints a Python with bench/requirements.txt, in a virtual environment that is made once. usage: bench-venv.sh CACHE
set -euo pipefail
requirements=$(cd "$(dirname "$0")/.." && pwd)/bench/requirements.txt
venv=$1/bench-venv
if [ ! -e "$venv/complete" ]; then
    echo "installing the peers into $venv (llama.cpp builds from source: some minutes)" >&2
    rm -rf "$venv"
    python3 -m venv "$venv" >&2
    # llama.cpp 0.3.36's AMX kernels end in a general protection fault on a virtual Xeon.
    without_amx="-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"
    [ "$(uname -m)" != x86_64 ] || export CMAKE_ARGS="-DCMAKE_C_FLAGS='$without_amx' -DCMAKE_CXX_FLAGS='$without_amx'"
    "$venv/bin/pip" install --quiet --no-cache-dir -r "$requirements" >&2
    touch "$venv/complete"
fi
echo "$venv/bin/python"
