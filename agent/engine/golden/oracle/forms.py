"""The forms in which published checkpoints store experts, made of those that transformers saves."""

import re

import torch

from . import mxfp4


def split(tensors):
    """`experts.gate_up_proj` [expert, 2 · width, in] and `experts.down_proj` to matrices of each expert.

    DeepSeek, Qwen3 and the draft layers of Qwen3.5 have them so.
    """
    for name in [name for name in tensors if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        whole = tensors.pop(name)
        layer, kind = name.rsplit(".", 1)
        for expert, matrix in enumerate(whole):
            parts = {"gate_proj": matrix[: len(matrix) // 2], "up_proj": matrix[len(matrix) // 2 :]}
            if kind == "down_proj":
                parts = {kind: matrix}
            for part, values in parts.items():
                tensors[f"{layer}.{expert}.{part}.weight"] = values.contiguous()


def join(tensors):
    """The other way round: Qwen3.5 has the experts of its main layers so, as transformers has them in memory."""
    experts = {}
    for name in list(tensors):
        found = re.fullmatch(r"(model\..*\.experts)\.(\d+)\.(\w+)\.weight", name)
        if found:
            experts.setdefault(found[1], {})[int(found[2]), found[3]] = tensors.pop(name)
    for layer, matrices in experts.items():
        def stacked(kind):
            return torch.stack([matrices[key] for key in sorted(matrices) if key[1] == kind])
        tensors[f"{layer}.gate_up_proj"] = torch.cat([stacked("gate_proj"), stacked("up_proj")], 1)
        tensors[f"{layer}.down_proj"] = stacked("down_proj")


def pack(tensors):
    """gpt_oss's experts in MXFP4, which alone is published."""
    for name in [name for name in tensors if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        tensors[f"{name}_blocks"], tensors[f"{name}_scales"], _ = mxfp4.quantise(tensors.pop(name))


# What the configuration then says.
MXFP4_CONFIG = {
    "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head",
    ],
    "quant_method": "mxfp4",
}
