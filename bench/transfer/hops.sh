#!/usr/bin/env bash
# Where the time of one 64 KiB write goes, as root on a kernel with tracefs. Usage: bench/transfer/hops.sh PD_AGENT
# On a machine that others use, `chrt -r 10` before it keeps them out of the figures, but not out of the caches.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
agent=$(realpath "$1")
raw=$(mktemp)
trap 'rm -f "$raw"' EXIT
cc -O2 -Wall -o "$raw" "$here/raw.c"
python3 -B "$here/hops.py" --agent "$agent" --raw "$raw"
