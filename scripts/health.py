#!/usr/bin/env python3
"""Asks those who judge objects by their status about ours, with an object of each phase: Argo CD's health scripts, as
Argo runs them (Lua 5.1, with the object as `obj` and nothing but its result read), and kstatus, which Flux and others
wait by.

usage: health.py LUA KSTATUS     in the repository; KSTATUS: the program of scripts/kstatus
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


def kstatus(program, paths):
    """What kstatus says of each file."""
    ran = subprocess.run([program, *paths], capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        sys.exit(f"pdserve: {program} fails: {ran.stderr}")
    lines = (line.split("\t") for line in ran.stdout.splitlines())
    return {path: status for path, status, _ in lines}


def main():
    interpreter, program = sys.argv[1:]
    expected_by_kstatus = json.loads(pathlib.Path("scripts/kstatus/expected.json").read_text())
    failed = []
    for folder in sorted(path.parent for path in pathlib.Path("contrib/argocd").rglob("health_test.yaml")):
        script = (folder / "health.lua").read_text()
        expected_cases = cases((folder / "health_test.yaml").read_text())
        paths = sorted((folder / "testdata").iterdir())
        unused = {path.name for path in paths} - {pathlib.Path(path).name for path, *_ in expected_cases}
        assert not unused, f"{folder}: no case for {unused}"
        statuses = kstatus(program, paths)
        print(f"  {folder.name:26} {'Argo CD':12} kstatus")
        for path, *expected in expected_cases:
            path = folder / path
            by_argo = health(interpreter, script, json.loads(path.read_text()))
            by_kstatus = statuses[str(path)]
            print(f"    {path.stem:24} {by_argo[0]:12} {by_kstatus}")
            if by_argo != tuple(expected):
                failed.append(f"{path}: Argo CD: expected {expected}, got {by_argo}")
            expected = expected_by_kstatus[folder.name].pop(path.stem, None)
            if by_kstatus != expected:
                failed.append(f"{path}: kstatus: expected {expected}, got {by_kstatus}")
        if left := expected_by_kstatus[folder.name]:
            failed.append(f"{folder}: no object for {', '.join(left)}")
    if failed:
        sys.exit("\n".join(failed))


main()
