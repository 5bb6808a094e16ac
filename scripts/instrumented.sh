#!/usr/bin/env bash
# What cargo calls as RUSTC_WORKSPACE_WRAPPER: rustc with counters of the lines that run, for this workspace's crates alone.
exec "$@" -Cinstrument-coverage
