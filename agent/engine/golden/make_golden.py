"""Makes the tiny random checkpoints beside this file, and their golden logits, with Hugging Face transformers.

Run in development only; what it writes is committed, so tests need neither Python nor a network. `make golden` runs it
in an environment with the versions of `requirements.txt` (transformers 5.19.0, torch 2.14.1), with which it gives the
committed bytes:

    python make_golden.py                                     # all that is committed
    python make_golden.py qwen2 gpt_oss                       # some of it
    python make_golden.py qwen2 --seed 7 --out FOLDER --set num_hidden_layers=2 rope_parameters.rope_theta=5e5

Every folder holds a complete model: config, weights, tokenizer, chat template, and `golden.safetensors` (see
`oracle/logits.py`); `draft.safetensors` (`oracle/drafts.py`) where there are draft layers. Where a seed is unfit (a
choice lies too close to a tie), another is taken, and said; of what is committed none is.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import shutil
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers

from oracle import checkpoint, gguf_files, logits
from oracle.families import FAMILIES

HERE = pathlib.Path(__file__).parent
# Sums are split among threads, so their number is part of what the committed bytes depend on.
THREADS = 2
# How often another seed than the given one is tried, and how far away it is.
TRIES, STEP = 40, 10_000


def arguments():
    parser = argparse.ArgumentParser(description="Tiny checkpoints with golden logits.")
    parser.add_argument("families", nargs="*", help=f"of: {' '.join(FAMILIES)} gguf")
    parser.add_argument("--seed", type=int, help="another seed for the weights")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="other values of the configuration")
    parser.add_argument("--out", type=pathlib.Path, help="the folder, of one family")
    given = parser.parse_args()
    unknown = [name for name in given.families if name not in [*FAMILIES, "gguf"]]
    if unknown:
        parser.error(f"{unknown[0]} is no family; there are {' '.join(FAMILIES)} and gguf")
    other = given.seed is not None or given.set
    if other and not given.out or given.out and len(given.families) != 1:
        parser.error("another seed or values are for one family and for a folder of their own: give --out")
    if given.out and given.families == ["gguf"]:
        parser.error("the GGUF files are made as committed only")
    return given


def with_values(family, settings):
    """The family with `key=value` set; a key may lead into a nested value by dots."""
    values = json.loads(json.dumps(family.values))
    for setting in settings:
        path, found, text = setting.partition("=")
        assert found, f"{setting} has no ="
        *outer, last = path.split(".")
        place = values
        for key in outer:
            place = place.setdefault(key, {})
        try:
            place[last] = json.loads(text)
        except json.JSONDecodeError:
            place[last] = text
    return dataclasses.replace(family, values=values)


def varied(folder, family, seed):
    """Makes a checkpoint that is not committed, with the first of a row of seeds that is fit."""
    for seed in range(seed, seed + TRIES * STEP, STEP):
        try:
            return f"seed {seed}, {checkpoint.make(folder, family, seed, distinct=1)}"
        except logits.Unfit as reason:
            print(f"seed {seed} is unfit: {reason}", file=sys.stderr)
    shutil.rmtree(folder)
    sys.exit(f"none of {TRIES} seeds is fit; take values with fewer experts to choose from, layers or tokens")


def main():
    given = arguments()
    torch.set_num_threads(THREADS)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    for name in given.families or ["gguf", *FAMILIES]:
        if name == "gguf":
            gguf_files.make_all(HERE / "tiny-gguf")
            continue
        family = with_values(FAMILIES[name], given.set)
        if given.out:
            folder, report = given.out, varied(given.out, family, family.seed if given.seed is None else given.seed)
        else:
            folder = HERE / f"tiny-{name.replace('_', '-')}"
            report = checkpoint.make(folder, family, family.seed)
        print(f"{folder.name}: {sum(file.stat().st_size for file in folder.iterdir())} bytes, {report}")


if __name__ == "__main__":
    main()
