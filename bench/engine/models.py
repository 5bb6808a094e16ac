"""What the engines are given: SmolLM2 in BF16 as a folder and as a file, and a mixture of experts in the proportions of
Qwen3-30B-A3B with random weights. Made once, under the given folder.
"""

import ctypes
import functools
import json
import os
import shutil

import numpy


@functools.cache
def llama():
    """llama.cpp, silent. It keeps the pointer of what takes its log, so that lives as long as the process."""
    import llama_cpp
    llama.log = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(llama.log, ctypes.c_void_p())
    llama_cpp.llama_backend_init()
    return llama_cpp


def smollm2_bf16(gguf, folder):
    """A Hugging Face folder of the file's weights in BF16."""
    if os.path.exists(f"{folder}/config.json"):
        return folder
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer
    source = {"pretrained_model_name_or_path": os.path.dirname(gguf), "gguf_file": os.path.basename(gguf)}
    model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.bfloat16)
    os.makedirs(folder, exist_ok=True)
    # transformers does not save a model that it read from GGUF; the head is the embedding.
    weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items() if name != "lm_head.weight"}
    save_file(weights, f"{folder}/model.safetensors", metadata={"format": "pt"})
    AutoTokenizer.from_pretrained(**source).save_pretrained(folder)
    config = model.config.to_dict()
    config.pop("quantization_config", None)
    config |= {"architectures": ["LlamaForCausalLM"], "dtype": "bfloat16", "tie_word_embeddings": True}
    with open(f"{folder}/config.json", "w") as file:
        json.dump(config, file, indent=1)
    return folder


def first_layers(folder, target, layers):
    """A model of the first layers of another, with its embedding, norm and head: right at times if few are missing."""
    if os.path.exists(f"{target}/config.json"):
        return target
    from safetensors.torch import load_file, save_file
    weights = load_file(f"{folder}/model.safetensors")
    kept = {name: tensor for name, tensor in weights.items()
            if not name.startswith("model.layers.") or int(name.split(".")[2]) < layers}
    os.makedirs(target, exist_ok=True)
    save_file(kept, f"{target}/model.safetensors", metadata={"format": "pt"})
    shutil.copy(f"{folder}/tokenizer.json", target)
    shutil.copy(f"{folder}/tokenizer_config.json", target)
    with open(f"{folder}/config.json") as file:
        config = json.load(file)
    config["num_hidden_layers"] = layers
    if "layer_types" in config:
        config["layer_types"] = config["layer_types"][:layers]
    with open(f"{target}/config.json", "w") as file:
        json.dump(config, file, indent=1)
    return target


def requantised(source, target, kind):
    """`source` with its weights in another form, by llama.cpp: "BF16" or "Q4_K_M"."""
    if os.path.exists(target):
        return target
    llama_cpp = llama()
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = {"BF16": llama_cpp.LLAMA_FTYPE_MOSTLY_BF16, "Q4_K_M": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_M}[kind]
    params.allow_requantize = True
    failed = llama_cpp.llama_model_quantize(
        os.fsencode(source), os.fsencode(target + ".part"), ctypes.byref(params))
    assert not failed, f"llama.cpp did not write {target}"
    os.rename(target + ".part", target)
    return target


# Qwen3-30B-A3B has a hidden size of 2048, 48 layers, 32 heads over 4 KV heads of 128, and 128 experts of 768, 8 a
# token. Half the hidden size, heads and experts, of 512, since K-quants are blocks of 256; layers as memory lets.
MOE = {"layers": 16, "hidden": 1024, "heads": 16, "kv_heads": 2, "head_dim": 128, "experts": 64, "top_k": 8,
       "expert_dim": 512}
# Files are named by it.
MOE_NAME = "-".join(str(size) for size in MOE.values())


def experts_bf16(tokenizer_gguf, target):
    """A GGUF file of the architecture `qwen3moe` with random BF16 weights and the tokenizer of another file."""
    if os.path.exists(target):
        return target
    import gguf
    reader = gguf.GGUFReader(tokenizer_gguf)
    writer = gguf.GGUFWriter(target + ".part", "qwen3moe")
    vocab = 0
    for name, field in reader.fields.items():
        if name.startswith("tokenizer."):
            inner = field.types[1] if len(field.types) > 1 else None
            writer.add_key_value(name, field.contents(), field.types[0], inner)
            if name == "tokenizer.ggml.tokens":
                vocab = len(field.data)
    hidden, heads, kv_heads, dim = MOE["hidden"], MOE["heads"], MOE["kv_heads"], MOE["head_dim"]
    writer.add_block_count(MOE["layers"])
    writer.add_context_length(4096)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(4 * hidden)
    writer.add_expert_feed_forward_length(MOE["expert_dim"])
    writer.add_expert_count(MOE["experts"])
    writer.add_expert_used_count(MOE["top_k"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(dim)
    writer.add_value_length(dim)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    writer.add_vocab_size(vocab)
    random = numpy.random.default_rng(1)

    def weight(name, *shape):
        values = random.standard_normal(shape, dtype=numpy.float32) * (shape[-1] ** -0.5)
        halves = (values.view(numpy.uint32) + 0x8000 >> 16).astype(numpy.uint16)
        writer.add_tensor(name, halves.view(numpy.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)

    def ones(name, length):
        writer.add_tensor(name, numpy.ones(length, dtype=numpy.float32))

    weight("token_embd.weight", vocab, hidden)
    weight("output.weight", vocab, hidden)
    ones("output_norm.weight", hidden)
    for layer in range(MOE["layers"]):
        block = f"blk.{layer}"
        ones(f"{block}.attn_norm.weight", hidden)
        ones(f"{block}.ffn_norm.weight", hidden)
        ones(f"{block}.attn_q_norm.weight", dim)
        ones(f"{block}.attn_k_norm.weight", dim)
        weight(f"{block}.attn_q.weight", heads * dim, hidden)
        weight(f"{block}.attn_k.weight", kv_heads * dim, hidden)
        weight(f"{block}.attn_v.weight", kv_heads * dim, hidden)
        weight(f"{block}.attn_output.weight", hidden, heads * dim)
        router = random.standard_normal((MOE["experts"], hidden), dtype=numpy.float32) * (hidden ** -0.5)
        writer.add_tensor(f"{block}.ffn_gate_inp.weight", router)
        for part in ["gate", "up"]:
            weight(f"{block}.ffn_{part}_exps.weight", MOE["experts"], MOE["expert_dim"], hidden)
        weight(f"{block}.ffn_down_exps.weight", MOE["experts"], hidden, MOE["expert_dim"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.rename(target + ".part", target)
    return target
