#!/usr/bin/env bash
# cargo with the settings of tests (xtask/tests.toml): external crates are those that a release has compiled, and what is made
# for use lies in TARGET/tests, apart from a release's. Usage: scripts/cargo-tests.sh SUBCOMMAND ARGUMENTS...
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}
subcommand=$1
shift
CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-1} CARGO_BUILD_BUILD_DIR=$target \
    exec cargo "$subcommand" --release --config xtask/tests.toml --target-dir "$target/tests" "$@"
