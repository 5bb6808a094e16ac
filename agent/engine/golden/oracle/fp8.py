"""Matrices in E4M3 with scales, as published FP8 checkpoints have them: a scale for each block, or one for all."""

import json
import shutil
import tempfile

import torch
from safetensors.torch import load_file, save_file

LARGEST = 448.0
# One scale for a whole matrix.
WHOLE = None


def is_stored(name):
    """Published files keep embeddings, heads, norms and routers as they are."""
    return name.endswith(("_proj.weight", "_proj_with_mqa.weight"))


def quantise(weight, block):
    """The codes of a matrix, and the scales that its values are multiplied by."""
    rows, columns = block or weight.shape
    parts = [part.split(columns, 1) for part in weight.float().split(rows)]
    scales = torch.stack([torch.stack([part.abs().max() / LARGEST for part in row]) for row in parts])
    codes = (weight.float() / expanded(scales, block, weight.shape)).to(torch.float8_e4m3fn)
    return codes, scales if block else scales[0, 0]


def expanded(scales, block, shape):
    """A scale for each value."""
    if block is WHOLE:
        return scales
    rows, columns = block
    return scales.repeat_interleave(rows, 0)[: shape[0]].repeat_interleave(columns, 1)[:, : shape[1]]


def pack(tensors, block):
    """Matrices of a checkpoint in E4M3; scales of whole matrices have their activations' beside them, unused here."""
    for name in [name for name in tensors if is_stored(name)]:
        tensors[name], scales = quantise(tensors[name], block)
        if block is WHOLE:
            tensors[f"{name}_scale"] = scales
            tensors[name.replace(".weight", ".input_scale")] = torch.tensor(0.5)
        else:
            tensors[f"{name}_scale_inv"] = scales


def config(block):
    """What the configuration then says."""
    if block is WHOLE:
        return {"activation_scheme": "static", "ignored_layers": ["lm_head"], "quant_method": "fp8"}
    return {
        "activation_scheme": "dynamic", "fmt": "e4m3", "modules_to_not_convert": ["lm_head"], "quant_method": "fp8",
        "weight_block_size": list(block),
    }


def expand(folder, block):
    """A folder of its own with the same values in f32, each product rounded once."""
    plain = tempfile.mkdtemp()
    tensors = load_file(folder / "model.safetensors")
    for name in [name for name in tensors if is_stored(name)]:
        scales = tensors.pop(f"{name}_scale" if block is WHOLE else f"{name}_scale_inv")
        tensors[name] = tensors[name].float() * expanded(scales, block, tensors[name].shape)
    tensors = {name: tensor.float() for name, tensor in tensors.items() if not name.endswith(("input_scale", "k_scale", "v_scale"))}
    values = json.loads((folder / "config.json").read_text())
    del values["quantization_config"]
    shutil.copytree(folder, plain, dirs_exist_ok=True)
    save_file(tensors, f"{plain}/model.safetensors", metadata={"format": "pt"})
    with open(f"{plain}/config.json", "w") as file:
        json.dump(values, file)
    return plain
