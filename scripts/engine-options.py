#!/usr/bin/env python3
"""The options of an engine's command line, read from the source in a wheel and not by running it, which would want a GPU.

Usage: scripts/engine-options.py sglang VERSION... (writes crds/golden/options/sglang-VERSION.txt)

Each line is an option with its other names. Names come from calls of `add_argument`, and, since 0.5.2x, from annotated fields
(`name: A[type, Arg(aliases=[...])]`), as SGLang's own `add_cli_args_from_dataclass` makes them.
"""

import ast
import pathlib
import subprocess
import sys
import tempfile
import zipfile

OUT = pathlib.Path(__file__).parent.parent / "crds/golden/options"


def strings(node):
    """The text of a constant, or the texts of a list of them."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, (ast.List, ast.Tuple)):
        return [text for element in node.elts for text in strings(element)]
    return []


def of_call(call):
    """The names that `add_argument` is given."""
    if getattr(call.func, "attr", None) != "add_argument":
        return []
    return [name for arg in call.args for name in strings(arg) if name.startswith("--")]


def of_field(field):
    """The names of an annotated field, unless it has no option."""
    annotation = field.annotation
    if not (isinstance(annotation, ast.Subscript) and getattr(annotation.value, "id", None) == "A"):
        return []
    meta = annotation.slice.elts[-1]
    said = {}
    if isinstance(meta, ast.Call):
        said = {word.arg: word.value for word in meta.keywords}
        if getattr(meta.func, "id", None) != "Arg":
            return []
    if "no_cli" in said and getattr(said["no_cli"], "value", False):
        return []
    own = strings(said["cli_name"]) if "cli_name" in said else []
    own = own or ["--" + field.target.id.replace("_", "-")]
    return own + (strings(said["aliases"]) if "aliases" in said else [])


def options(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield of_call(node)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield of_field(node)


def main():
    package, *versions = sys.argv[1:]
    OUT.mkdir(parents=True, exist_ok=True)
    for version in versions:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
                            f"{package}=={version}", "--dest", folder], check=True)
            wheel, = pathlib.Path(folder).glob("*.whl")
            found = set()
            with zipfile.ZipFile(wheel) as files:
                for name in files.namelist():
                    if not name.startswith("sglang/srt/server_args.py") and "srt/arg_groups/fields/" not in name:
                        continue
                    tree = ast.parse(files.read(name))
                    found.update(" ".join(names) for names in options(tree) if names)
        out = OUT / f"{package}-{version}.txt"
        out.write_text("".join(f"{line}\n" for line in sorted(found)))
        print(f"{out}: {len(found)} options")


if __name__ == "__main__":
    main()
