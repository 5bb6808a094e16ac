#!/usr/bin/env bash
# Speed beside peers, all in one run on one machine. usage: run.sh RELEASE_DIR MODEL_GGUF
# PDSERVE_BENCH_PYTHON names a Python that has bench/requirements.txt; without it one is made.
set -euo pipefail
release=$1 model=$2
cd "$(dirname "$0")/.."
python=${PDSERVE_BENCH_PYTHON:-$(scripts/bench-venv.sh .cache)}
vllm=${PDSERVE_BENCH_VLLM:-$(scripts/vllm-venv.sh .cache)}
mkdir -p bench/results
cargo build --release --quiet -p pd-compute --example linear_speed
"$python" bench/engine/bench.py --agent "$release/pd-agent" --model "$model" --vllm-python "$vllm" \
    --peaks "$release/examples/linear_speed" --scratch .cache/bench-models \
    --out bench/results/engine.json | tee bench/results/engine.txt
"$python" bench/engine/first_token.py --release "$release" --model "$model" \
    --out bench/results/first_token.json | tee bench/results/first_token.txt
"$python" bench/engine/drafts.py --agent "$release/pd-agent" --model "$model" --scratch .cache/bench-models \
    --out bench/results/drafts.json | tee bench/results/drafts.txt
"$python" bench/engine/grammars.py --agent "$release/pd-agent" --model "$model" --scratch .cache/bench-models \
    --out bench/results/grammars.json | tee bench/results/grammars.txt
bench/transfer/run.sh "$release/pd-agent" bench/results/transfer.json | tee bench/results/transfer.txt
bench/router/run.sh "$release/pd-router" bench/results/router.json | tee bench/results/router.txt
