#!/usr/bin/env python3
"""Runs Argo CD's health scripts for our kinds on an object of each phase, as Argo does: by Lua 5.1, with the object as
`obj` and nothing but its result read.

usage: argocd-health.py LUA [FOLDER]     FOLDER: contrib/argocd, laid out as Argo's resource_customizations
"""

import json
import pathlib
import re
import subprocess
import sys


def lua(value):
    """A JSON value as a Lua expression."""
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return '"' + "".join(c if " " <= c <= "~" and c not in '"\\' else "".join(f"\\{b:03d}" for b in c.encode()) for c in value) + '"'
    if isinstance(value, list):
        return "{" + ", ".join(map(lua, value)) + "}"
    return "{" + ", ".join(f"[{lua(key)}] = {lua(item)}" for key, item in value.items()) + "}"


def health(interpreter, script, obj):
    program = f"local function script(obj)\n{script}\nend\nlocal hs = script({lua(obj)})\nio.write(hs.status, '\\n', hs.message)"
    ran = subprocess.run([interpreter, "-"], input=program, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        sys.exit(f"pdserve: the script fails: {ran.stderr}")
    return tuple(ran.stdout.split("\n", 1))


def cases(text):
    """The few lines that a health_test.yaml of ours has."""
    pattern = r"- healthStatus:\n    status: (\w+)\n    message: (\".*\")\n  inputPath: (\S+)\n"
    found = re.findall(pattern, text)
    assert len(found) == text.count("inputPath") > 0, "health_test.yaml has a case of another form"
    return [(path, status, json.loads(message)) for status, message, path in found]


def main():
    interpreter = sys.argv[1]
    root = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else "contrib/argocd")
    failed = count = 0
    for test in sorted(root.rglob("health_test.yaml")):
        folder = test.parent
        script = (folder / "health.lua").read_text()
        told = cases(test.read_text())
        unused = {p.name for p in (folder / "testdata").iterdir()} - {pathlib.Path(path).name for path, *_ in told}
        assert not unused, f"{folder}: no case for {unused}"
        for path, *expected in told:
            got = health(interpreter, script, json.loads((folder / path).read_text()))
            count += 1
            if got != tuple(expected):
                failed += 1
                print(f"{folder / path}: expected {expected}, got {got}", file=sys.stderr)
    if failed or not count:
        sys.exit(f"pdserve: {failed} of {count} objects have another health")
    print(f"Argo CD's health of {count} objects is as expected")


main()
