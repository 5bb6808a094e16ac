#!/usr/bin/env bash
# Prints the Python that makes golden logits: $GOLDEN_PYTHON, or a virtual environment with the pinned versions of
# transformers and torch, made once (PyPI's torch for Linux brings CUDA's libraries: 6 GB). usage: golden-venv.sh CACHE
set -euo pipefail
if [ -n "${GOLDEN_PYTHON:-}" ]; then
    echo "$GOLDEN_PYTHON"
    exit
fi
requirements=$(cd "$(dirname "$0")/.." && pwd)/agent/engine/golden/requirements.txt
venv=$1/golden-venv
fail() { printf 'pdserve: %s\n' "$@" >&2; exit 1; }

if ! cmp -s "$requirements" "$venv/installed"; then
    command -v python3 >/dev/null || fail "python3 is needed to make golden logits." \
        "On Debian: apt-get install python3 python3-venv"
    echo "installing transformers and torch into $venv (once, 6 GB, about five minutes)" >&2
    mkdir -p "$1"
    rm -rf "$venv"
    python3 -m venv "$venv" >&2 || fail "python3 cannot make a virtual environment; its message is above." \
        "On Debian: apt-get install python3-venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir -r "$requirements" >&2 ||
        fail "pip cannot install what $requirements names; its message is above." \
            "Set GOLDEN_PYTHON to a Python that has these packages."
    cp "$requirements" "$venv/installed"
fi
echo "$venv/bin/python"
