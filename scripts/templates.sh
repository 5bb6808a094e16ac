#!/usr/bin/env bash
# Fetches chat templates of published models, which llama.cpp's source has, and writes prompts by them with transformers
# (agent/engine/golden/make_templates.py).
# Needs a Python with bench/requirements.txt: $PDSERVE_BENCH_PYTHON, or the one of `make bench`, made here if it is missing.
# usage: templates.sh CACHE OUT
set -euo pipefail
cd "$(dirname "$0")/.."
cache=$1 out=$2
python=${PDSERVE_BENCH_PYTHON:-$(scripts/bench-venv.sh "$cache")}
home=$cache/templates
if [ ! -e "$home/complete" ]; then
    echo "fetching chat templates of published models from PyPI (once, 110 MB)"
    rm -rf "$home"
    scripts/llama-cpp-source.sh "$python" "$home" models/templates
    touch "$home/complete"
fi
"$python" agent/engine/golden/make_templates.py --templates "$home/models/templates" --out "$out"
