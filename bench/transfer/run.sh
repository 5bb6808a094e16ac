#!/usr/bin/env bash
# KV transfer beside other engines and what the machine can do without a protocol, all in one run.
# Usage: bench/transfer/run.sh PD_AGENT OUT_JSON
# PDSERVE_BENCH_TRANSFER names a Python that has requirements.txt; without it one is made.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
agent=$(realpath "$1") out=$(realpath "$2")
cd "$here/../.."
venv=.cache/transfer-venv
python=${PDSERVE_BENCH_TRANSFER:-$venv/bin/python}
if [ ! -x "$python" ]; then
    echo "installing the peers into $venv" >&2
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --no-cache-dir --no-deps -r "$here/requirements.txt"
fi
if ! ldconfig -p | grep -q libibverbs.so.1; then
    echo "Mooncake and NIXL need libibverbs; install Debian's libibverbs1, librdmacm1 and libnuma1" >&2
    exit 1
fi
raw=$(mktemp)
trap 'rm -f "$raw"' EXIT
cc -O2 -Wall -o "$raw" "$here/raw.c"
"$python" -B "$here/bench.py" --agent "$agent" --raw "$raw" --python "$python" --out "$out"
