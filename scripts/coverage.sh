#!/usr/bin/env bash
# Which share of the lines of each folder seeds of the simulation run. Fails where a folder that a deployment's life depends on
# has less than FLOOR. Usage: scripts/coverage.sh SEEDS TARGET_DIR
set -euo pipefail
cd "$(dirname "$0")/.."
seeds=$1 dir=$2 floor=85
tools=$(rustc --print sysroot)/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')/bin
[ -x "$tools/llvm-cov" ] || rustup component add llvm-tools
rm -rf "$dir/raw"
mkdir -p "$dir/raw"

RUSTC_WORKSPACE_WRAPPER=$PWD/scripts/instrumented.sh CARGO_TARGET_DIR=$dir/build CARGO_INCREMENTAL=0 LLVM_PROFILE_FILE=/dev/null \
    cargo build -q --config simulation/profile.toml --workspace --features pd-e2e/kube,pd-e2e/rdma --bin pd-simulation
program=$dir/build/debug/pd-simulation
# Processes add to the same few files.
LLVM_PROFILE_FILE=$dir/raw/%4m.profraw "$program" --seeds "$seeds"
"$tools/llvm-profdata" merge -o "$dir/merged.profdata" "$dir"/raw/*.profraw
"$tools/llvm-cov" report "$program" --instr-profile "$dir/merged.profdata" --ignore-filename-regex '\.cargo|/rustc/|/simulation/' \
    >"$dir/report.txt" 2>"$dir/report.log"
