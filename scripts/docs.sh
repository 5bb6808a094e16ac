#!/usr/bin/env bash
# Builds the book of docs/SUMMARY.md into target/book and lists its pages. Pages link to files of the repository, so the
# source of the book has the repository's folders. Usage: docs.sh CACHE
set -euo pipefail
cache=$1
version=0.5.4
mdbook=$cache/mdbook/bin/mdbook
if [ "$("$mdbook" --version 2>/dev/null)" != "mdbook v$version" ]; then
    cargo install mdbook --version "$version" --locked --root "$cache/mdbook"
fi
source=target/book-src
rm -rf "$source" target/book
mkdir -p "$source"
git ls-files -z --cached --others --exclude-standard -- '*.md' examples bench/results contrib LICENSE |
    xargs -0 cp --parents -t "$source"
# mdBook calls a folder's README index, and does not follow links to it.
find "$source" -name '*.md' -exec sed -i -E 's#\]\(([^):]*/)?README\.md#](\1index.md#g' {} +
sed 's#](\([^)]*\))#](docs/\1)#; s#docs/\.\./##' docs/SUMMARY.md >"$source/SUMMARY.md"
"$mdbook" build . 2>&1 | grep -v INFO || true
python3 scripts/dead_links.py target/book
(cd target/book && find . -name '*.html' ! -name print.html ! -name 404.html ! -name toc.html | sort)
