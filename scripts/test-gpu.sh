#!/bin/sh
# Proof on a GPU, run from the bundle it lies in. Writes test-gpu.json and its table test-gpu.txt into $OUT, or here;
# parts that they have as ok are not run again.
# usage: test-gpu.sh [PART]… [--again] [--seconds N]    (--help lists the parts)
set -eu
bundle=$(cd "$(dirname "$0")" && pwd)
exec "$bundle/gpu-agents" --results "${OUT:-.}/test-gpu.json" "$@"
