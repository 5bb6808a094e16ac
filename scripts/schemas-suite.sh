#!/usr/bin/env bash
# Prints the folder of the JSON-Schema-Test-Suite's tests (MIT), fetched once: PyPI's jsonschema carries the suite in its sources; npm's
# @json-schema-org/tests only refers to a repository. usage: schemas-suite.sh CACHE
set -euo pipefail
version=4.26.0
sha256=0c26707e2efad8aa1bfc5b7ce170f3fccc2e4918ff85989ba9ffa9facb2be326
home=$1/schemas-suite-$version
if [ ! -e "$home/complete" ]; then
    echo "fetching the JSON-Schema-Test-Suite (in jsonschema $version, 0.4 MB)" >&2
    rm -rf "$home"
    mkdir -p "$home"
    python3 -m pip download --disable-pip-version-check --no-cache-dir --quiet --no-deps --no-binary jsonschema \
        -d "$home" "jsonschema==$version" >&2
    packed=$home/jsonschema-$version.tar.gz
    echo "$sha256  $packed" | sha256sum --check --quiet >&2
    tar -xzf "$packed" -C "$home" --strip-components=1 "jsonschema-$version/json"
    touch "$home/complete"
fi
echo "$home/json/tests"
