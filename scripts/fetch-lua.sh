#!/usr/bin/env bash
# Prints a Lua 5.1, which Argo CD's interpreter speaks: that of the PATH, or of Debian's package, fetched once.
# usage: fetch-lua.sh CACHE
set -euo pipefail
folder=$1/lua
if found=$(command -v lua5.1); then
    echo "$found"
    exit
fi
if [ ! -x "$folder/usr/bin/lua5.1" ]; then
    echo "fetching Debian's package lua5.1 (once)" >&2
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    (cd "$work" && apt-get download -qq -o APT::Sandbox::User=root lua5.1 >&2) || {
        echo "pdserve: lua5.1 is not on the PATH, and apt-get cannot download Debian's package." >&2
        exit 1
    }
    mkdir -p "$folder"
    dpkg-deb -x "$work"/lua5.1_*.deb "$folder"
fi
echo "$folder/usr/bin/lua5.1"
