#!/usr/bin/env bash
# Says what is missing to build, and how to get it, before cargo says it less clearly.
set -euo pipefail
fail() { printf 'pdserve: %s\n' "$@" >&2; exit 1; }

command -v cargo >/dev/null || fail "cargo is not on the PATH." \
    "Install Rust with rustup (https://rustup.rs), then open a new shell or run: . \"\$HOME/.cargo/env\""
command -v cc >/dev/null || fail "no C compiler (cc) on the PATH." "On Debian: apt-get install gcc"

need=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
have=$(rustc --version 2>/dev/null | awk '{print $2}') || true
[ -n "$have" ] || fail "rustc does not run here." "Install the pinned toolchain: rustup toolchain install"
[ "$(printf '%s\n%s\n' "$need" "$have" | sort -V | head -n1)" = "$need" ] || fail \
    "rustc $have is older than the $need that this workspace needs." \
    "Update it: rustup toolchain install $need   (rust-toolchain.toml then selects it by itself)"
