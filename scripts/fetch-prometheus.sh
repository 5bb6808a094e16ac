#!/usr/bin/env bash
# Prints the folder with prometheus and promtool: that of the PATH, or of Debian's package, fetched once.
# usage: fetch-prometheus.sh CACHE
set -euo pipefail
folder=$1/prometheus/usr/bin
if found=$(command -v promtool) && command -v prometheus >/dev/null; then
    dirname "$found"
    exit
fi
if [ ! -x "$folder/promtool" ]; then
    echo "fetching Debian's package prometheus (once)" >&2
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    (cd "$work" && apt-get download -qq -o APT::Sandbox::User=root prometheus >&2) || {
        echo "pdserve: promtool is not on the PATH, and apt-get cannot download Debian's package prometheus." >&2
        exit 1
    }
    dpkg-deb -x "$work"/prometheus_*.deb "$1/prometheus"
fi
echo "$folder"
