#!/usr/bin/env bash
# Which share of each folder's lines seeds of the simulation run. Fails where a folder that decides what becomes of a request has
# less than FLOOR percent. Usage: scripts/coverage.sh SEEDS TARGET_DIR
set -euo pipefail
cd "$(dirname "$0")/.."
seeds=$1 dir=$2 floor=85
folders='router/src/client router/src/dispatch router/src/policy router/src/queue router/src/relay router/src/workers http/src
    agent/kv-transfer/src/control agent/kv-transfer/src/decode_side agent/kv-transfer/src/prefill_side agent/kv-transfer/src/transport/tcp
    agent/engine/src/disaggregation agent/engine/src/kvcache agent/engine/src/schedule'
# What runs outside only: see docs/simulation.md.
outside='/simulation/|/decode_side/incoming/|/prefill_side/pulled\.rs|/relay/transform\.rs|/dispatch/sequential\.rs|/kvcache/device\.rs|/schedule/unified\.rs|/http/src/descriptors\.rs'

tools=$(rustc --print sysroot)/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')/bin
[ -x "$tools/llvm-cov" ] || rustup component add llvm-tools
rm -rf "$dir/raw"
mkdir -p "$dir/raw"
RUSTC_WORKSPACE_WRAPPER=$PWD/scripts/instrumented.sh CARGO_TARGET_DIR=$dir/build CARGO_INCREMENTAL=0 LLVM_PROFILE_FILE=/dev/null \
    scripts/cargo-tests.sh build -q --config simulation/profile.toml --workspace --features pd-e2e/engines,pd-e2e/kube,pd-e2e/rdma --bin pd-simulation
program=$dir/build/tests/release/pd-simulation
# Processes add to the same few files.
LLVM_PROFILE_FILE=$dir/raw/%4m.profraw "$program" --seeds "$seeds"
"$tools/llvm-profdata" merge -o "$dir/merged.profdata" "$dir"/raw/*.profraw
"$tools/llvm-cov" report "$program" --instr-profile "$dir/merged.profdata" --ignore-filename-regex "\.cargo|/rustc/|$outside" \
    >"$dir/report.txt" 2>"$dir/report.log"
# Columns 8 and 9 are lines, and those that never ran.
awk -v floor=$floor -v folders="$folders" '
    /\.rs / { folder = $1; sub(/\/[^\/]*$/, "", folder); lines[folder] += $8; missed[folder] += $9 }
    END {
        count = split(folders, named)
        for (nr = 1; nr <= count; nr++) {
            folder = named[nr]
            if (!lines[folder]) { print folder ": no lines"; low = 1; continue }
            share = 100 * (1 - missed[folder] / lines[folder])
            printf "%5.1f %% of %4d lines  %s\n", share, lines[folder], folder
            if (share < floor) low = 1
        }
        if (low) { print "below " floor " %"; exit 1 }
    }' "$dir/report.txt"
