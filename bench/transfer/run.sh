#!/usr/bin/env bash
# KV transfer over loopback beside what the machine can do without a protocol, in one run.
# Usage: bench/transfer/run.sh
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
raw=$(mktemp)
trap 'rm -f "$raw"' EXIT
cc -O2 -o "$raw" "$here/raw.c"
cd "$here/../.."
cargo build -q --release -p pd-kv-transfer --example throughput
ceiling=$("$raw")
echo "$ceiling" | sed 's/^/bare C loop: /; s/$/ GB\/s/'
cargo run -q --release -p pd-kv-transfer --example throughput -- \
    "$(awk '$1 == "tcp" { print $2 }' <<<"$ceiling")" \
    "$(awk '$1 == "memcpy" { print $2 }' <<<"$ceiling")"
