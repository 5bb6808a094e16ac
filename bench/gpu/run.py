"""All that is measured on a GPU, in parts: ops, whole models, and transformers beside them. A part that has its
result of this build on this device is not run again, so a run that was cut off goes on; one JSON and one table.

usage: run.py BUNDLE OUT_JSON OUT_TXT [--device cpu] [--models tiny] [--families] [--again]
"""

import argparse
import hashlib
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

MODELS = ["Qwen3-0.6B", "Qwen3-4B", "Qwen3-8B"]
# Their first layers, since a whole one takes minutes to generate.
FAMILIES = ["qwen3.5-35b-a3b:8", "qwen3-30b-a3b:6", "deepseek-v2-lite:6", "gpt-oss-20b:8"]
# What a goal is set for, as a share of the bound. Source: the requirements on decode at batch 1 and prompts of 8k.
GOALS = {("Qwen3-0.6B", "decode 1 × 128"): 0.40, ("Qwen3-4B", "decode 1 × 128"): 0.75,
         ("Qwen3-8B", "decode 1 × 128"): 0.75, ("Qwen3-4B", "prefill 8192"): 0.65, ("Qwen3-8B", "prefill 8192"): 0.65}
PART_SECONDS = 540


def parts(args):
    bundle, peer = args.bundle, pathlib.Path(__file__).with_name("peer.py")
    if args.device == "cuda" and not args.families:
        yield "ops", [bundle / "gpu-bench", "{out}"]
    for model in args.models:
        device = ["--device", args.device]
        yield f"model {model}", [bundle / "model-speed", bundle / "models" / "tiny-qwen3", "{out}", "--models", model, *device]
    for model in args.models:
        yield f"peer {model}", [sys.executable, peer, "{out}", model]


def run(name, command):
    """Runs a part, its lines shown; its JSON, or None where it failed."""
    print(f"\n== {name}", flush=True)
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [out.name if word == "{out}" else word for word in command]
        try:
            ended = subprocess.run(command, timeout=PART_SECONDS, check=False).returncode
        except subprocess.TimeoutExpired:
            ended = f"nothing within {PART_SECONDS} s"
        except OSError as error:
            ended = error
        if ended != 0:
            print(f"{name} did not end well: {ended}", flush=True)
            return None
        return json.loads(pathlib.Path(out.name).read_text())


def device_name(device):
    """The first GPU, or what else was asked for."""
    if device != "cuda" or not shutil.which("nvidia-smi"):
        return device
    ask = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    return subprocess.run(ask, check=True, capture_output=True, text=True).stdout.splitlines()[0]


def before(args, device, build):
    """The results that still hold: all of this build on this device; of another build, those of the peer."""
    if args.again or not args.json.exists():
        return {}
    found = json.loads(args.json.read_text())
    if found.get("device") != device:
        return {}
    if found.get("build") == build:
        return found
    return {name: result for name, result in found.items() if name.startswith("peer")}


def conditions(found, models):
    """What device it was, what it does at best, and who was measured beside us."""
    for model in models:
        ours, theirs = found.get(f"model {model}"), found.get(f"peer {model}", {})
        if ours and ours["bounds"]:
            bounds = ours["bounds"]
            yield (f"{ours['device']}: {bounds['gb_per_s']:.0f} GB/s copied, {bounds['tflop_per_s']:.0f} TFLOP/s of bfloat16 "
                   f"by cuBLASLt; transformers {theirs.get('transformers', '-')} with torch {theirs.get('torch', '-')}")
            return


def table(found, models):
    yield f"{'model':18} {'what':24} {'ours, ms':>10} {'p99':>9} {'of bound':>9} {'goal':>6} {'transformers, ms':>17}"
    for model in models:
        ours = found.get(f"model {model}", {"models": [{"measured": []}]})["models"][0]["measured"]
        theirs = found.get(f"peer {model}", {"models": {}})["models"].get(model, {})
        for line in ours:
            share, p99, peer = line["share"], line["p99_ms"], theirs.get(line["what"])
            goal = GOALS.get((model, line["what"]))
            yield (f"{model:18} {line['what']:24} {line['ms']:10.3f} "
                   f"{f'{p99:9.3f}' if p99 else '':>9} {f'{share:8.1%}' if share else '':>9} "
                   f"{f'{goal:.0%}' if goal else '':>6} {f'{peer:.3f}' if peer else '-':>17}")


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("bundle", type=lambda path: pathlib.Path(path).resolve())
    args.add_argument("json", type=pathlib.Path)
    args.add_argument("txt", type=pathlib.Path)
    args.add_argument("--device", default="cuda")
    args.add_argument("--models", type=lambda names: names.split(","))
    args.add_argument("--families", action="store_true", help="the first layers of models with experts, states and latents")
    args.add_argument("--again", action="store_true")
    args = args.parse_args()
    args.models = args.models or (FAMILIES if args.families else MODELS)
    device = device_name(args.device)
    digest = hashlib.sha256()
    for program in ["model-speed", "gpu-bench"]:
        digest.update((args.bundle / program).read_bytes())
    build = digest.hexdigest()[:16]
    found = {**before(args, device, build), "device": device, "build": build}
    failed = []
    for name, command in parts(args):
        if name not in found:
            result = run(name, command)
            if result is None:
                failed.append(name)
                continue
            found[name] = result
            args.json.write_text(json.dumps(found, indent=1) + "\n")
    lines = [*conditions(found, args.models), *table(found, args.models)]
    args.txt.write_text("\n".join(lines) + "\n")
    print("", *lines, sep="\n")
    # A peer that is not there is no fault of ours.
    sys.exit(any(not name.startswith("peer") for name in failed))


main()
