"""Writes `published/*/tensors.txt`: the tensors of published checkpoints, of their configurations and without weights.

    python make_published.py

The modules are built by transformers on the meta device; its conversion mapping gives the names in files. What neither
knows (draft layers, FP8 scales, MXFP4, experts in one tensor, what is kept in f32) is added here. See `published/README.md`.
"""

import itertools
import json
import math
import pathlib
import re

import torch
import transformers
from transformers.core_model_loading import revert_weight_conversion

from oracle import drafts, forms

PUBLISHED = pathlib.Path(__file__).parent / "published"
BYTES = {"BF16": 2, "F32": 4, "U8": 1, "F8_E4M3": 1}
KEPT = "config as kept by ai-dynamo/aiconfigurator"
SUM = "The sum of bytes is that of its index."
SOURCES = {
    "qwen2.5-7b": f"Qwen/Qwen2.5-7B-Instruct; config as two public copies have it. {SUM}",
    "mistral-7b-v0.3": f"mistralai/Mistral-7B-v0.3; config as public copies of Instruct-v0.3 have it. {SUM}",
    "qwen3-30b-a3b": f"Qwen/Qwen3-30B-A3B; {KEPT}. {SUM}",
    "qwen3.5-27b": f"Qwen/Qwen3.5-27B; {KEPT}. {SUM}",
    "qwen3.5-35b-a3b": f"Qwen/Qwen3.5-35B-A3B; {KEPT}. Reported by those who read it: experts in one tensor, but one by "
    "one under mtp. Unverified: the sum of bytes.",
    "qwen3-next-80b-a3b": f"Qwen/Qwen3-Next-80B-A3B-Thinking; {KEPT}. Unverified: the sum of bytes; that A_log, dt_bias "
    "and linear_attn.norm are BF16.",
    "deepseek-v3": f"deepseek-ai/DeepSeek-V3; {KEPT}. Unverified: the sum of bytes; that eh_proj is BF16.",
    "deepseek-v2-lite": "deepseek-ai/DeepSeek-V2-Lite; config put together of copies of the family, with q_lora_rank, "
    f"topk_method and rope_scaling from descriptions. {SUM}",
    "gemma-3-4b-it": f"google/gemma-3-4b-it; config as public copies have it. {SUM} Unverified: names under vision_tower.",
    "gpt-oss-20b": f"openai/gpt-oss-20b; {KEPT}. {SUM}",
}


def tensors(folder):
    """Name to (dtype, shape) of every tensor of a published checkpoint."""
    config = transformers.AutoConfig.from_pretrained(folder)
    for part in {id(c): c for c in (config, config.get_text_config())}.values():
        part.__dict__.pop("quantization_config", None)
    kind = transformers.AutoModelForCausalLM
    if hasattr(config, "vision_config"):
        kind = transformers.AutoModelForImageTextToText
    with torch.device("meta"):
        model = kind.from_config(config, dtype=torch.bfloat16)
        draft = draft_of(model)
    of_text = model.config.get_text_config()
    state = {name: tensor for name, tensor in model.state_dict().items() if not is_tied(of_text, name)}
    state = dict(revert_weight_conversion(model, state))
    if of_text.model_type == "qwen3_5_moe_text":
        forms.join(state)
    if of_text.model_type == "gemma3_text":
        state = {name.replace("vision_tower.", "vision_tower.vision_model."): tensor for name, tensor in state.items()}
    if draft is not None:
        kind = "deepseek" if of_text.model_type == "deepseek_v3" else "qwen"
        state |= drafts.published(kind, model, draft)
        if kind == "deepseek":
            layer = f"model.layers.{of_text.num_hidden_layers}"
            state[f"{layer}.embed_tokens.weight"] = state[f"{layer}.shared_head.head.weight"] = state["lm_head.weight"]
    listed = {name: (dtype(of_text, name), list(tensor.shape)) for name, tensor in state.items()}
    if of_text.model_type == "deepseek_v3":
        listed |= fp8(listed)
    if of_text.model_type == "gpt_oss":
        listed = mxfp4(listed)
    return listed


def draft_of(model):
    """Qwen3-Next's configuration does not say that its files have a draft layer."""
    of_text = model.config.get_text_config()
    if of_text.model_type == "deepseek_v3":
        return drafts.build("deepseek", model)
    if getattr(of_text, "mtp_num_hidden_layers", 0) or of_text.model_type == "qwen3_next":
        return drafts.build("qwen", model)
    return None


def is_tied(config, name):
    return config.tie_word_embeddings and name == "lm_head.weight"


def dtype(config, name):
    kept = name.endswith("e_score_correction_bias")
    if config.model_type.startswith("qwen3_5"):
        kept = kept or name.endswith(("A_log", "linear_attn.norm.weight"))
    return "F32" if kept else "BF16"


def fp8(listed):
    """DeepSeek-V3's matrices of attention and feed-forward, and the scale of each block of 128 × 128."""
    found = {}
    for name, (_, shape) in listed.items():
        if name.endswith("_proj.weight") and "eh_proj" not in name or "kv_a_proj_with_mqa" in name:
            found[name] = ("F8_E4M3", shape)
            found[f"{name}_scale_inv"] = ("F32", [math.ceil(size / 128) for size in shape])
    return found


def mxfp4(listed):
    """[expert, in, out] of gpt_oss in blocks of 32 along `in`."""
    found = {}
    for name, (kind, shape) in listed.items():
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            experts, inputs, outputs = shape
            found[f"{name}_blocks"] = ("U8", [experts, outputs, inputs // 32, 16])
            found[f"{name}_scales"] = ("U8", [experts, outputs, inputs // 32])
        else:
            found[name] = (kind, shape)
    return found


def lines(listed):
    """One line for all tensors whose names differ in numbers only."""
    groups = {}
    for name, (kind, shape) in listed.items():
        numbers = tuple(map(int, re.findall(r"(?<=\.)\d+(?=\.)", name)))
        pattern = re.sub(r"(?<=\.)\d+(?=\.)", "{}", name)
        groups.setdefault((pattern, kind, str(shape)), []).append(numbers)
    for (pattern, kind, shape), numbers in groups.items():
        axes = [sorted(set(axis)) for axis in zip(*numbers)]
        assert sorted(numbers) == list(itertools.product(*axes)), f"{pattern} is not in all of {axes}"
        yield f"{pattern.format(*map(ranges, axes))} {kind} {shape}"


def ranges(numbers):
    """`3`, or `{0..2,5}`."""
    if len(numbers) == 1:
        return str(numbers[0])
    runs = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return "{" + ",".join(str(a) if a == b else f"{a}..{b}" for a, b in runs) + "}"


def main():
    transformers.logging.set_verbosity_error()
    for name, source in SOURCES.items():
        listed = tensors(PUBLISHED / name)
        size = sum(BYTES[kind] * math.prod(shape) for kind, shape in listed.values())
        head = [f"# {source}", f"# {len(listed)} tensors, {size} bytes"]
        text = "\n".join([*head, *sorted(lines(listed), key=natural)]) + "\n"
        (PUBLISHED / name / "tensors.txt").write_text(text)
        print(f"{name}: {len(listed)} tensors, {size} bytes, {len(text)} bytes of text")


def natural(line):
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", line)]


if __name__ == "__main__":
    main()
