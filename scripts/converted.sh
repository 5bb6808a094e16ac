#!/usr/bin/env bash
# Fetches llama.cpp's converter and Mistral's vocabularies, and makes GGUF files by them (agent/engine/golden/make_converted.py).
# Needs a Python with bench/requirements.txt: $PDSERVE_BENCH_PYTHON, or the one of `make bench`, made here if it is missing.
# usage: converted.sh CACHE OUT
set -euo pipefail
cd "$(dirname "$0")/.."
cache=$1 out=$2
python=${PDSERVE_BENCH_PYTHON:-$(scripts/bench-venv.sh "$cache")}
home=$cache/converted
llama_cpp=0.3.36
sum=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
if [ ! -e "$home/complete" ]; then
    echo "fetching llama.cpp's converter and vocabularies from PyPI (once, 110 MB)"
    rm -rf "$home"
    mkdir -p "$home"
    "$python" - "$home/sdist.tar.gz" $llama_cpp $sum <<'FETCH'
import hashlib, re, sys, urllib.request
path, version, wanted = sys.argv[1:]
# Not by pip, which would build it to know what it needs.
with urllib.request.urlopen("https://pypi.org/simple/llama-cpp-python/") as answer:
    page = answer.read().decode()
[url] = re.findall(rf'href="([^"#]*/llama_cpp_python-{version}\.tar\.gz)', page)
with urllib.request.urlopen(url) as answer:
    contents = answer.read()
found = hashlib.sha256(contents).hexdigest()
assert found == wanted, f"{url} has the hash {found}, expected {wanted}"
open(path, "wb").write(contents)
FETCH
    tar -xzf "$home/sdist.tar.gz" -C "$home" --strip-components=3 --wildcards \
        '*/vendor/llama.cpp/convert_hf_to_gguf.py' '*/vendor/llama.cpp/conversion' '*/vendor/llama.cpp/gguf-py'
    rm "$home/sdist.tar.gz"
    "$python" -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-deps --target "$home/packages" \
        sentencepiece==0.2.1 mistral-common==1.13.1
    touch "$home/complete"
fi
PYTHONPATH=$home/packages "$python" agent/engine/golden/make_converted.py --llama-cpp "$home" --out "$out" \
    --pieces "$home"/packages/mistral_common/data/*.model.v[123]
