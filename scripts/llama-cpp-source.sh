#!/usr/bin/env bash
# Unpacks parts of llama.cpp's source, as llama-cpp-python's archive on PyPI has it: PATTERNs below vendor/llama.cpp.
# usage: llama-cpp-source.sh PYTHON FOLDER PATTERN...
set -euo pipefail
python=$1 folder=$2
shift 2
mkdir -p "$folder"
"$python" - "$folder/sdist.tar.gz" 0.3.36 832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e <<'FETCH'
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
tar -xzf "$folder/sdist.tar.gz" -C "$folder" --strip-components=3 --wildcards "${@/#/*/vendor/llama.cpp/}"
rm "$folder/sdist.tar.gz"
