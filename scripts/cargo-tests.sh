#!/usr/bin/env bash
# cargo with the settings of tests (xtask/tests.toml): external crates are those that a release has compiled, and what is made
# for use lies in TARGET/tests, apart from a release's. With LINTED=1 clippy compiles our own, and warnings are errors: one
# pass instead of two. Usage: scripts/cargo-tests.sh SUBCOMMAND ARGUMENTS...
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}
subcommand=$1
shift
if [ "${LINTED:-}" = 1 ]; then
    RUSTC_WORKSPACE_WRAPPER=$(rustc --print sysroot)/bin/clippy-driver
    # As cargo-clippy hands over its arguments.
    CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__
    export RUSTC_WORKSPACE_WRAPPER CLIPPY_ARGS
fi
CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-1} CARGO_BUILD_BUILD_DIR=$target \
    exec cargo "$subcommand" --release --config xtask/tests.toml --target-dir "$target/tests" "$@"
