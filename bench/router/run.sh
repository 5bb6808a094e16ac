#!/usr/bin/env bash
# What a request costs the router, beside other routers where pip can fetch them, all in one run.
# Usage: bench/router/run.sh PD_ROUTER OUT_JSON
# PDSERVE_BENCH_ROUTERS names a Python environment that has requirements.txt; without it one is made.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
router=$(realpath "$1") out=$(realpath "$2")
cd "$here/../.."
venv=${PDSERVE_BENCH_ROUTERS:-.cache/routers-venv}
if [ ! -x "$venv/bin/python" ]; then
    echo "installing other routers into $venv" >&2
    python3 -m venv "$venv"
    while read -r package; do
        "$venv/bin/pip" install --quiet --no-cache-dir "$package" ||
            echo "$package could not be fetched; the table lacks it" >&2
    done <"$here/requirements.txt"
fi
cargo bench -q -p pd-router --bench overhead -- --router "pd-router=$router" \
    --peers "$(realpath "$venv")" --out "$out"
