#!/usr/bin/env bash
# Speed beside peers, all in one run on one machine. usage: run.sh RELEASE_DIR MODEL_GGUF
# PDSERVE_BENCH_PYTHON names a Python that has bench/requirements.txt; without it one is made.
set -euo pipefail
release=$1 model=$2
cd "$(dirname "$0")/.."
venv=.cache/bench-venv
python=${PDSERVE_BENCH_PYTHON:-$venv/bin/python}
if [ ! -x "$python" ]; then
    echo "installing the peers into $venv (llama.cpp builds from source: some minutes)"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --no-cache-dir -r bench/requirements.txt
fi
mkdir -p bench/results
"$python" bench/engine/bench.py --agent "$release/pd-agent" --model "$model" \
    --out bench/results/engine.json | tee bench/results/engine.txt
"$python" bench/engine/first_token.py --release "$release" --model "$model" \
    --out bench/results/first_token.json | tee bench/results/first_token.txt
bench/transfer/run.sh "$release/pd-agent" bench/results/transfer.json | tee bench/results/transfer.txt
bench/router/run.sh "$release/pd-router" bench/results/router.json | tee bench/results/router.txt
