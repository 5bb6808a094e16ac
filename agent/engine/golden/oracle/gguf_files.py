"""GGUF files of the families that are read from them, in every format that is read, and their golden logits."""

import dataclasses
import json

import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, LlamaConfig

from . import logits, pieces, text
from .families import FAMILIES, common
from .weights import randomise

CACHED_STEPS = 8
LAYER_NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate": "ffn_gate_inp",
}
NORMS_OF_GEMMA3 = {
    "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
OTHER_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def make_all(folder):
    """Writes every file, and prints what there is to say of each."""
    folder.mkdir(exist_ok=True)
    kinds = gguf.GGMLQuantizationType
    llama, qwen3 = random_model(FAMILIES["llama"]), random_model(FAMILIES["qwen3"])
    # Whole blocks of 32 a row, and no window, which GGUF files of this family do not have.
    qwen2 = random_model(FAMILIES["qwen2"], hidden_size=64, intermediate_size=96, use_sliding_window=False)
    for kind in (kinds.F32, kinds.F16, kinds.BF16, kinds.Q8_0, kinds.Q4_0, kinds.Q4_1):
        make(folder, f"llama-{kind.name.lower()}", llama, "llama", as_type(kind))
    make(folder, "qwen2-q8_0", qwen2, "qwen2", as_type(kinds.Q8_0))
    make(folder, "qwen3-q8_0", qwen3, "qwen3", as_type(kinds.Q8_0))
    # Experts in every layer, as llama.cpp has them in this family.
    experts = random_model(FAMILIES["qwen3_moe"], num_hidden_layers=2, moe_intermediate_size=32, mlp_only_layers=[])
    for kind in (kinds.F32, kinds.Q8_0):
        make(folder, f"qwen3moe-{kind.name.lower()}", experts, "qwen3moe", as_type(kind))
    make(folder, "llama-k", wide_llama(), "llama", k_quants(seed=4))
    # Whole blocks of 32 a row, queries scaled as llama.cpp scales them, and a window that ends within the prompt.
    lively = dataclasses.replace(FAMILIES["gemma3"], seed=12)
    gemma3 = random_model(lively, hidden_size=96, query_pre_attn_scalar=24, sliding_window=24)
    make(folder, "gemma3-q8_0", gemma3, "gemma3", as_type(kinds.Q8_0))


def make(folder, name, model, arch, quantise):
    path = folder / f"{name}.gguf"
    write(path, model, arch, quantise)
    # The configuration is given, since transformers does not read the head size of a GGUF file.
    reloaded = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=path.name, config=model.config, dtype=torch.float32, attn_implementation="eager")
    run = logits.run(reloaded.eval(), text.prompt(FAMILIES["llama"].prompt), CACHED_STEPS)
    save_file(logits.tensors(run, None), folder / f"{name}.golden.safetensors")
    print(f"{path.name}: {path.stat().st_size} bytes, {len(set(run.tokens[run.prompt:]))} distinct tokens")


def random_model(family, **other):
    model = AutoModelForCausalLM.from_config(family.config(**{**family.values, **other}), dtype=torch.float32)
    randomise(model, model.config, family.seed)
    return model


def wide_llama():
    """Rows of 256, which K-quants ask for."""
    model = AutoModelForCausalLM.from_config(LlamaConfig(**common(
        hidden_size=256, intermediate_size=256, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
        head_dim=64, rope_theta=10000.0, tie_word_embeddings=True,
    )), dtype=torch.float32)
    randomise(model, model.config, seed=3)
    return model


def write(path, model, arch, quantise):
    """`quantise(name, array)` gives the bytes of a matrix and their type; vectors and routers stay F32."""
    writer = gguf.GGUFWriter(path, arch)
    config = model.config
    write_metadata(writer, config, arch)
    for name, array in matrices_and_vectors(model):
        if arch == "gemma3" and name.endswith("norm.weight"):
            array = array + 1
        if array.ndim == 1 or name.endswith("ffn_gate_inp.weight"):
            writer.add_tensor(name, array)
            continue
        if arch == "llama" and ".attn_q." in name:
            array = permute(array, config.num_attention_heads)
        if arch == "llama" and ".attn_k." in name:
            array = permute(array, config.num_key_value_heads)
        data, kind = quantise(name, np.ascontiguousarray(array))
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def matrices_and_vectors(model):
    """All tensors by the names that llama.cpp gives them; gates and ups of experts are apart there."""
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        array = weight.float().numpy()
        layer = f"blk.{name.split('.')[2]}" if ".layers." in name else None
        if name.endswith("experts.gate_up_proj"):
            gate, up = np.split(array, 2, axis=1)
            yield f"{layer}.ffn_gate_exps.weight", gate
            yield f"{layer}.ffn_up_exps.weight", up
        elif name.endswith("experts.down_proj"):
            yield f"{layer}.ffn_down_exps.weight", array
        else:
            yield gguf_name(name, model.config.model_type), array


def write_metadata(writer, config, arch):
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if arch == "gemma3":
        write_windows(writer, config)
    else:
        writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_rope_dimension_count(head_dim)
    if arch != "llama":
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    if arch == "qwen3moe":
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    writer.add_vocab_size(config.vocab_size)
    if arch == "gemma3":
        write_pieces(writer)
    else:
        write_byte_level(writer)
    writer.add_bos_token_id(config.bos_token_id)
    writer.add_eos_token_id(text.EOS)
    writer.add_add_bos_token(False)
    writer.add_chat_template(text.CHAT_TEMPLATE)


def write_windows(writer, config):
    full, sliding = (config.rope_parameters[kind] for kind in ("full_attention", "sliding_attention"))
    writer.add_rope_freq_base(full["rope_theta"])
    writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
    writer.add_rope_scaling_factor(full["factor"])
    writer.add_float32("gemma3.rope.freq_base_swa", sliding["rope_theta"])
    writer.add_sliding_window(config.sliding_window)
    writer.add_sliding_window_pattern(config.layer_types.index("full_attention") + 1)
    writer.add_final_logit_softcapping(config.final_logit_softcapping)
    # Of the tower that published files have beside them.
    writer.add_uint32("gemma3.mm.tokens_per_image", 256)


def write_pieces(writer):
    tokens, scores, types = zip(*pieces.read())
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types(types)
    writer.add_add_space_prefix(False)


def write_byte_level(writer):
    model = json.loads(text.TOKENIZER.backend_tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in text.SPECIALS else 1 for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in model["merges"]])


def gguf_name(name, model_type):
    if name in OTHER_NAMES:
        return OTHER_NAMES[name]
    _, _, layer, rest = name.split(".", 3)
    module, kind = rest.rsplit(".", 1)
    names = {**LAYER_NAMES, **(NORMS_OF_GEMMA3 if model_type == "gemma3_text" else {})}
    return f"blk.{layer}.{names[module]}.{kind}"


def permute(weight, heads):
    """llama.cpp stores Q and K rows of this architecture in pairs (i, i + half) for its interleaved RoPE."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def as_type(kind):
    return lambda _name, array: (gguf.quants.quantize(array, kind), kind)


def k_quants(seed):
    """gguf-py reads K-quants but does not write them, so the blocks themselves are the random numbers."""
    rng = np.random.default_rng(seed)

    def quantise(name, array):
        wide = "token_embd" in name or "attn_v" in name or "ffn_down" in name
        kind = gguf.GGMLQuantizationType.Q6_K if wide else gguf.GGMLQuantizationType.Q4_K
        rows, columns = array.shape
        blocks = (random_q6_k if wide else random_q4_k)(rng, rows * columns // 256).reshape(rows, -1)
        return blocks, kind

    return quantise


def random_q4_k(rng, blocks):
    """Blocks of 256: two f16 scales, eight 6-bit scales and minima in 12 bytes, 128 bytes of nibbles."""
    block = rng.integers(0, 256, (blocks, 144), dtype=np.uint8)
    scale = (rng.uniform(0.5, 1.0, blocks) * 3.2e-4).astype(np.float16)
    block[:, 0:2] = scale.view(np.uint8).reshape(blocks, 2)
    block[:, 2:4] = (scale * np.float16(7.5)).view(np.uint8).reshape(blocks, 2)
    return block


def random_q6_k(rng, blocks):
    """Blocks of 256: 128 bytes of low nibbles, 64 of high bit pairs, sixteen signed scales, one f16 scale."""
    block = rng.integers(0, 256, (blocks, 210), dtype=np.uint8)
    scale = (rng.uniform(0.5, 1.0, blocks) * 8e-5).astype(np.float16)
    block[:, 208:210] = scale.view(np.uint8).reshape(blocks, 2)
    return block
