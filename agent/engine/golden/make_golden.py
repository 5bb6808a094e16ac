"""Makes the tiny random checkpoints beside this file, and their golden logits, with Hugging Face transformers.

Run in development only; what it writes is committed, so tests need neither Python nor a network:

    pip install torch transformers safetensors gguf accelerate
    python make_golden.py

Every folder holds a complete model: config, weights, tokenizer, chat template, and `golden.safetensors` with
`tokens` (a prompt, then greedy tokens) and `logits` (one row for each token: the distribution of the next one).
Rows of the prompt come from one forward pass, the rest one by one from the KV cache. Norm weights and biases are
perturbed, since the ones and zeros they start as would hide a norm or a bias that is never applied.
"""

import json
import pathlib
import shutil

import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Qwen2Config,
                          Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)

HERE = pathlib.Path(__file__).parent
PROMPT_LEN = 40
CACHED_STEPS = 64
GGUF_CACHED_STEPS = 8
VOCAB = 384
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
EOS = SPECIALS.index("<|im_end|>")

CHAT_TEMPLATE = """{%- for message in messages -%}
{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
"""

CORPUS = """The prefill worker reads the prompt once and writes a key and a value for every token it sees.
The decode worker waits until those pages have arrived, then answers one token after another.
A page that is still being written must never be given to someone else. Count the pages, count them again:
free, cached, held, and the few that wait in quarantine. 1, 2, 3, 16, 64, 128, 1024 tokens; 0.5 or 2.25 seconds.
When the river rises the miller opens the gate, and when it falls he closes it; there is no hurry in either.
What was asked? "What is the capital of France?" Who answered? The nearest one who knew. Where is the rest of it?
They walked from the house to the harbour in the morning, and in the evening they walked from the harbour home.
for (i = 0; i < n; i += 1) { total = total + items[i]; } return total / n;
"""


def build_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS.splitlines(), trainer)
    assert tokenizer.get_vocab_size() == VOCAB
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=CHAT_TEMPLATE,
    )


def randomise(model, seed):
    """Weights large enough that logits differ clearly and greedy text does not settle on one token."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            if "norm" in name:
                weight.copy_(1.0 + 0.3 * noise)
            elif name.endswith("bias"):
                weight.copy_(0.5 * noise)
            elif "embed" in name:
                weight.copy_(noise * 0.6)
            else:
                weight.copy_(noise * 1.2 / weight.shape[1] ** 0.5)


def golden(model, prompt, steps):
    """Tokens and logits: the prompt in one pass, then greedy steps through the KV cache."""
    model = model.eval()
    tokens, rows = list(prompt), []
    with torch.no_grad():
        out = model(torch.tensor([prompt]), use_cache=True)
        rows.append(out.logits[0])
        for _ in range(steps):
            tokens.append(int(rows[-1][-1].argmax()))
            out = model(torch.tensor([tokens[-1:]]), past_key_values=out.past_key_values, use_cache=True)
            rows.append(out.logits[0])
    return {
        "tokens": torch.tensor(tokens, dtype=torch.int32),
        "logits": torch.cat(rows).float().contiguous(),
        "prompt_len": torch.tensor([len(prompt)], dtype=torch.int32),
    }


def save_checkpoint(folder, model, tokenizer, dtype, shard_size):
    shutil.rmtree(folder, ignore_errors=True)
    model = model.to(dtype)
    model.save_pretrained(folder, max_shard_size=shard_size)
    tokenizer.save_pretrained(folder)
    prompt = tokenizer.encode(CORPUS)[:PROMPT_LEN]
    reloaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    expected = golden(reloaded, prompt, CACHED_STEPS)
    save_file(expected, folder / "golden.safetensors")
    distinct = len(set(expected["tokens"].tolist()[PROMPT_LEN:]))
    print(f"{folder.name}: {sum(f.stat().st_size for f in folder.iterdir())} bytes, {distinct} distinct greedy tokens")


def common(**extra):
    return dict(
        vocab_size=VOCAB,
        max_position_embeddings=4096,
        rms_norm_eps=1e-5,
        bos_token_id=SPECIALS.index("<|im_start|>"),
        eos_token_id=EOS,
        pad_token_id=SPECIALS.index("<|endoftext|>"),
        **extra,
    )


def tiny_llama():
    config = LlamaConfig(**common(
        hidden_size=64, intermediate_size=160, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        rope_theta=10000.0, tie_word_embeddings=True,
    ))
    model = LlamaForCausalLM(config)
    randomise(model, seed=1)
    return model


def tiny_qwen3():
    """head_dim is not hidden / heads, the output head is its own matrix, weights are BF16 in two shards."""
    config = Qwen3Config(**common(
        hidden_size=96, intermediate_size=160, num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2,
        head_dim=32, rope_theta=1000000.0, tie_word_embeddings=False,
    ))
    model = Qwen3ForCausalLM(config)
    randomise(model, seed=2)
    return model


def tiny_qwen2():
    """Biases on q, k and v; weights are BF16."""
    config = Qwen2Config(**common(
        hidden_size=64, intermediate_size=160, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        rope_theta=1000000.0, tie_word_embeddings=False,
    ))
    model = Qwen2ForCausalLM(config)
    randomise(model, seed=13)
    return model


def permute_for_gguf(weight, heads):
    """llama.cpp stores Q and K rows of this architecture in pairs (i, i + half) for its interleaved RoPE."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


LAYER_NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
}


def gguf_name(name):
    if name == "model.embed_tokens.weight":
        return "token_embd.weight"
    if name == "model.norm.weight":
        return "output_norm.weight"
    if name == "lm_head.weight":
        return "output.weight"
    _, _, layer, rest = name.split(".", 3)
    module, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{LAYER_NAMES[module]}.{kind}"


def write_metadata(writer, config, tokenizer, arch):
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_rope_dimension_count(head_dim)
    if arch != "llama":
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    writer.add_vocab_size(config.vocab_size)
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in SPECIALS else 1 for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in model["merges"]])
    writer.add_bos_token_id(config.bos_token_id)
    writer.add_eos_token_id(EOS)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def write_gguf(path, model, tokenizer, arch, quantise):
    """`quantise(name, array)` gives the bytes of a matrix and their type; vectors stay F32."""
    writer = gguf.GGUFWriter(path, arch)
    config = model.config
    write_metadata(writer, config, tokenizer, arch)
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        array = weight.float().numpy()
        if array.ndim == 1:
            writer.add_tensor(gguf_name(name), array)
            continue
        if arch == "llama" and ".q_proj." in name:
            array = permute_for_gguf(array, config.num_attention_heads)
        if arch == "llama" and ".k_proj." in name:
            array = permute_for_gguf(array, config.num_key_value_heads)
        data, kind = quantise(name, np.ascontiguousarray(array))
        writer.add_tensor(gguf_name(name), data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def as_type(kind):
    return lambda _name, array: (gguf.quants.quantize(array, kind), kind)


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


def k_quants(seed):
    """gguf-py reads K-quants but does not write them, so the blocks themselves are the random numbers."""
    rng = np.random.default_rng(seed)

    def quantise(name, array):
        wide = "embed" in name or "v_proj" in name or "down_proj" in name
        kind = gguf.GGMLQuantizationType.Q6_K if wide else gguf.GGMLQuantizationType.Q4_K
        rows, columns = array.shape
        make = random_q6_k if wide else random_q4_k
        blocks = make(rng, rows * columns // 256).reshape(rows, -1)
        values = gguf.quants.dequantize(blocks, kind)
        print(f"  {name} {kind.name} rms {np.sqrt((values ** 2).mean()):.4f}")
        return blocks, kind

    return quantise


def save_gguf(name, model, tokenizer, arch, quantise):
    folder = HERE / "tiny-gguf"
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.gguf"
    write_gguf(path, model, tokenizer, arch, quantise)
    # The configuration is given, since transformers does not read the head size of a GGUF file.
    reloaded = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=path.name, config=model.config, dtype=torch.float32, attn_implementation="eager")
    expected = golden(reloaded, tokenizer.encode(CORPUS)[:PROMPT_LEN], GGUF_CACHED_STEPS)
    save_file(expected, folder / f"{name}.golden.safetensors")
    distinct = len(set(expected["tokens"].tolist()[PROMPT_LEN:]))
    print(f"{path.name}: {path.stat().st_size} bytes, {distinct} distinct greedy tokens")


def main():
    tokenizer = build_tokenizer()
    llama, qwen2, qwen3 = tiny_llama(), tiny_qwen2(), tiny_qwen3()
    shutil.rmtree(HERE / "tiny-gguf", ignore_errors=True)
    kinds = gguf.GGMLQuantizationType
    for kind in (kinds.F32, kinds.F16, kinds.BF16, kinds.Q8_0, kinds.Q4_0, kinds.Q4_1):
        save_gguf(f"llama-{kind.name.lower()}", llama, tokenizer, "llama", as_type(kind))
    save_gguf("qwen2-q8_0", qwen2, tokenizer, "qwen2", as_type(kinds.Q8_0))
    save_gguf("qwen3-q8_0", qwen3, tokenizer, "qwen3", as_type(kinds.Q8_0))
    config = LlamaConfig(**common(
        hidden_size=256, intermediate_size=256, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
        head_dim=64, rope_theta=10000.0, tie_word_embeddings=True,
    ))
    wide = LlamaForCausalLM(config)
    randomise(wide, seed=3)
    save_gguf("llama-k", wide, tokenizer, "llama", k_quants(seed=4))
    save_checkpoint(HERE / "tiny-llama", llama, tokenizer, torch.float32, "5GB")
    save_checkpoint(HERE / "tiny-qwen2", qwen2, tokenizer, torch.bfloat16, "5GB")
    save_checkpoint(HERE / "tiny-qwen3", qwen3, tokenizer, torch.bfloat16, "400KB")


if __name__ == "__main__":
    main()
