"""Writes the folder of a tiny checkpoint: config, weights, tokenizer, chat template, and what transformers answers."""

import dataclasses
import json
import pathlib
import shutil

import torch
import transformers
from safetensors.torch import load_file, save_file

from . import drafts, forms, fp8, kv, logits, mxfp4, text
from .weights import randomise

# What published files keep in f32 among tensors in bf16.
F32_ALWAYS = ("e_score_correction_bias",)
F32_OF_QWEN3_5 = ("A_log", "linear_attn.norm.weight")


def make(folder, family, seed, distinct=logits.LIVELY):
    """Makes the checkpoint and returns what is to be said about it; `logits.Unfit` if the seed will not do."""
    config = family.config(**family.values)
    model, draft = build(config, family, seed)
    shutil.rmtree(folder, ignore_errors=True)
    save(folder, family, model, draft)
    reloaded = load(folder, family)
    run = logits.run(reloaded, text.prompt(family.prompt), family.steps)
    report = logits.check(reloaded, run, distinct)
    rows = None if family.all_rows else logits.kept(run)
    save_file(logits.tensors(run, rows), folder / "golden.safetensors")
    if family.kv:
        cache = kv.RoundedCache(config.num_hidden_layers)
        rounded = logits.run(reloaded, text.prompt(family.prompt), family.steps, cache)
        if cache.margin < kv.TIE_MARGIN or not cache.beyond:
            raise logits.Unfit(f"{report}, KV {cache.margin:.0e} from a tie, {cache.beyond} beyond")
        save_file(logits.tensors(rounded, logits.kept(rounded)), folder / "kv.safetensors")
        report += f", KV {cache.margin:.0e} from a tie, {cache.beyond} beyond"
    if draft is not None:
        golden = drafts.golden(reloaded, draft.float(), run, rows)
        save_file(golden, folder / "draft.safetensors")
        report += f", drafts {golden['chain_tokens'].tolist()}"
    for file in folder.iterdir():
        file.chmod(0o644)  # safetensors makes files for its user alone
    return report


def build(config, family, seed):
    """The model, and its draft layer or None, rounded to what is stored."""
    kind = transformers.AutoModelForCausalLM
    if hasattr(config, "vision_config"):
        kind = transformers.AutoModelForImageTextToText
    model = kind.from_config(config, dtype=torch.float32, attn_implementation="eager")
    of_text = model.config.get_text_config()
    randomise(model, of_text, seed)
    draft = None
    if family.draft:
        draft = drafts.build(family.draft, model)
        randomise(draft, of_text, seed + 1000)
    if of_text.model_type == "gpt_oss":
        round_to_mxfp4(model)
    for part in [model] if draft is None else [model, draft]:
        store_as(part, of_text, family.dtype)
    return model, draft


def round_to_mxfp4(model):
    """Both forms of a checkpoint have the values of the packed one, which bf16 holds exactly."""
    for name, weight in model.named_parameters():
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            weight.data = mxfp4.quantise(weight)[2]


def store_as(part, config, dtype):
    exempt = F32_ALWAYS + (F32_OF_QWEN3_5 if config.model_type.startswith("qwen3_5") else ())
    for name, tensor in [*part.named_parameters(), *part.named_buffers()]:
        if tensor.is_floating_point() and not name.endswith(exempt):
            tensor.data = tensor.data.to(dtype)
    config.dtype = part.config.dtype = dtype


def save(folder, family, model, draft):
    model.save_pretrained(folder, max_shard_size=family.shard_size)
    for name, contents in text.FILES.items():
        (folder / name).write_bytes(contents)
    path = folder / "model.safetensors"
    if not path.exists():
        return  # in shards, and as transformers saves it
    tensors = load_file(path)
    if model.config.get_text_config().model_type == "qwen3_5_moe_text":
        forms.join(tensors)
    if draft is not None:
        tensors |= drafts.published(family.draft, model, draft)
    if family.mxfp4:
        forms.pack(tensors)
        config = json.loads((folder / "config.json").read_text()) | {"quantization_config": forms.MXFP4_CONFIG}
        (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    if family.fp8:
        fp8.pack(tensors, *family.fp8)
        if family.kv:
            tensors |= kv.tensors(model.config.num_hidden_layers)
        config = json.loads((folder / "config.json").read_text()) | {"quantization_config": fp8.config(*family.fp8)}
        (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    save_file(tensors, path, metadata={"format": "pt"})


def load(folder, family):
    """The checkpoint as transformers reads it, in f32; one in FP8 is expanded before."""
    if family.fp8:
        plain = fp8.expand(folder, *family.fp8)
        model = load(pathlib.Path(plain), dataclasses.replace(family, fp8=None))
        shutil.rmtree(plain)
        return model
    options = {"quantization_config": transformers.Mxfp4Config(dequantize=True)} if family.mxfp4 else {}
    model, found = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True, **options)
    assert not found["missing_keys"] and not found["mismatched_keys"], found
    if model._can_set_experts_implementation():
        model.set_experts_implementation("eager")
    return model.float().eval()
