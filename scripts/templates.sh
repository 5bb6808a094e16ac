#!/usr/bin/env bash
# Writes prompts by chat templates of published models with transformers (agent/engine/golden/make_templates.py).
# Needs a Python with bench/requirements.txt: $PDSERVE_BENCH_PYTHON, or the one of `make bench`, made here if it is missing.
# usage: templates.sh CACHE OUT
set -euo pipefail
cd "$(dirname "$0")/.."
cache=$1 out=$2
python=${PDSERVE_BENCH_PYTHON:-$(scripts/bench-venv.sh "$cache")}
templates=$(scripts/published-templates.sh "$python" "$cache")
"$python" agent/engine/golden/make_templates.py --templates "$templates" --out "$out"
