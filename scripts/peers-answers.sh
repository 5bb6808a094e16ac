#!/usr/bin/env bash
# What pd-answers reads in answers beside what SGLang and vLLM read (agent/answers/peers/compare.py). Fetches SGLang's sources,
# gpt-oss's vocabulary and chat templates of published models, once.
# Needs a Python with vLLM: $PDSERVE_BENCH_VLLM, or the one of `make bench`, made here if it is missing (6 GB).
# usage: peers-answers.sh CACHE TAKE_APART
set -euo pipefail
cd "$(dirname "$0")/.."
cache=$1 take_apart=$2
python=${PDSERVE_BENCH_VLLM:-$(scripts/vllm-venv.sh "$cache")}
templates=$(scripts/published-templates.sh "$python" "$cache")
home=$cache/peers-answers
if [ ! -e "$home/complete" ]; then
    echo "fetching SGLang's parsers and gpt-oss's vocabulary from PyPI (once, 80 MB)"
    rm -rf "$home"
    pip=("$python" -m pip --quiet --disable-pip-version-check --no-cache-dir)
    "${pip[@]}" download --no-deps --dest "$home" sglang==0.5.23 litellm==1.110.2
    # What else its parsers import, vLLM has too.
    "${pip[@]}" install --no-deps --target "$home" orjson==3.13.0
    "$python" - "$home" <<'UNPACK'
import pathlib, sys, zipfile
home = pathlib.Path(sys.argv[1])
[wheel] = home.glob("sglang-*.whl")
parsers = "function_call/", "parser/", "entrypoints/openai/", "environ.py"
with zipfile.ZipFile(wheel) as packed:
    names = [name for name in packed.namelist() if name.startswith(tuple(f"sglang/srt/{part}" for part in parsers))]
    packed.extractall(home, names)
wheel.unlink()
# Under the name that tiktoken keeps it by; openai_harmony checks its hash.
[wheel] = home.glob("litellm-*.whl")
vocabulary = "litellm/litellm_core_utils/tokenizers/fb374d419588a4632f3f557e76b4b70aebbca790"
with zipfile.ZipFile(wheel) as packed:
    (home / "o200k_base.tiktoken").write_bytes(packed.read(vocabulary))
wheel.unlink()
UNPACK
    touch "$home/complete"
fi
PYTHONPATH=$home TIKTOKEN_ENCODINGS_BASE=$home VLLM_LOGGING_LEVEL=ERROR "$python" agent/answers/peers/compare.py \
    --take-apart "$take_apart" --sglang "$home" --templates "$templates"
