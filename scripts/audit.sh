#!/usr/bin/env bash
# cargo-deny over the whole dependency graph. The advisory database lives in a git repository; where
# that cannot be reached, licences and sources are still checked, and the omission is said.
set -euo pipefail
command -v cargo-deny >/dev/null || cargo install --locked --quiet cargo-deny@0.20.2
cargo deny --locked check --hide-inclusion-graph bans licenses sources
if cargo deny fetch db >/dev/null 2>&1; then
    cargo deny --locked check --hide-inclusion-graph advisories
else
    echo "advisories NOT checked: the advisory database cannot be fetched from here" >&2
fi
