#!/usr/bin/env python3
"""Fails when a page of a built book links to a file or an anchor that is not there. Usage: dead_links.py FOLDER"""

import pathlib
import re
import sys
import urllib.parse

BOOK = pathlib.Path(sys.argv[1]).resolve()
WITHOUT = {"print.html", "toc.html", "404.html"}  # mdBook's own: other pages joined, its list of pages, an error


def anchors(page: pathlib.Path) -> set[str]:
    return set(re.findall(r'\bid="([^"]+)"', page.read_text()))


def main() -> None:
    dead = []
    for page in sorted(BOOK.rglob("*.html")):
        if page.name in WITHOUT:
            continue
        for link in re.findall(r'<a[^>]* href="([^"]*)"', page.read_text()):
            url = urllib.parse.urlsplit(link)
            if url.scheme or url.netloc:
                continue
            target = (page.parent / urllib.parse.unquote(url.path)).resolve() if url.path else page
            if target.is_dir() and any(target.iterdir()):
                continue
            if not target.is_file() or (url.fragment and url.fragment not in anchors(target)):
                dead.append(f"{page.relative_to(BOOK)}: {link}")
    if dead:
        sys.exit("dead links:\n" + "\n".join(dead))


main()
