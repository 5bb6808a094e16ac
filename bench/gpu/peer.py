"""transformers with torch in the shapes that model-speed measures, on the same device: what a user has at hand.

usage: peer.py OUT_JSON [MODEL …]      MODEL: Qwen3-0.6B, Qwen3-4B, Qwen3-8B (all three), tiny; NAME:LAYERS of a folder
                                       in `models/published` beside this file
"""

import json
import pathlib
import statistics
import sys
import time

try:
    import torch
    import transformers
except ImportError as missing:
    sys.exit(f"{missing}: the peer is not measured here")

#        layers hidden intermediate q_heads kv_heads head_dim vocab tied
SHAPES = {
    "Qwen3-0.6B": (28, 1024, 3072, 16, 8, 128, 151936, True),
    "Qwen3-4B": (36, 2560, 9728, 32, 8, 128, 151936, True),
    "Qwen3-8B": (36, 4096, 12288, 32, 8, 128, 151936, False),
    "tiny": (2, 128, 256, 4, 2, 64, 512, True),
}
PUBLISHED = pathlib.Path(__file__).with_name("models") / "published"
DECODES, PROMPTS, BEFORE, WARM, STEPS = [1, 8, 64, 256], [2048, 8192, 32768], 128, 8, 32


def dense(name):
    layers, hidden, intermediate, q_heads, kv_heads, head_dim, vocab, tied = SHAPES[name]
    return transformers.Qwen3Config(
        num_hidden_layers=layers, hidden_size=hidden, intermediate_size=intermediate, num_attention_heads=q_heads,
        num_key_value_heads=kv_heads, head_dim=head_dim, vocab_size=vocab, tie_word_embeddings=tied,
        max_position_embeddings=40960)


def published(name):
    """The language model's first layers, unquantised: what transformers has no kernels for, it expands."""
    model, layers = name.split(":")
    config = json.loads((PUBLISHED / model / "config.json").read_text())
    text = config.pop("text_config", config)
    text["num_hidden_layers"] = int(layers)
    text.pop("quantization_config", None)
    text.pop("auto_map", None)
    if "layer_types" in text:
        text["layer_types"] = text["layer_types"][:int(layers)]
    return transformers.AutoConfig.for_model(**text)


def make(name, device):
    torch.set_default_dtype(torch.bfloat16)
    config = dense(name) if name in SHAPES else published(name)
    with torch.device(device):
        return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()


def timed(device, run):
    if device == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter()
    run()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - started) * 1e3


def decode(model, device, batch):
    vocab = model.config.vocab_size
    state = model(torch.randint(3, vocab, (batch, BEFORE), device=device), use_cache=True, logits_to_keep=1)
    state = {"cache": state.past_key_values, "ids": state.logits[:, -1:].argmax(-1)}

    def step():
        out = model(state["ids"], past_key_values=state["cache"], use_cache=True)
        state["ids"] = out.logits[:, -1:].argmax(-1)
    return statistics.median([timed(device, step) for _ in range(WARM + STEPS)][WARM:])


def prefill(model, device, tokens):
    ids = torch.randint(3, model.config.vocab_size, (1, tokens), device=device)
    return statistics.median([timed(device, lambda: model(ids, logits_to_keep=1)) for _ in range(4)][1:])


def main():
    out, names = sys.argv[1], sys.argv[2:] or [name for name in SHAPES if name != "tiny"]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    found = {"torch": torch.__version__, "transformers": transformers.__version__, "device": device, "models": {}}
    # A step of a large batch on a CPU takes long and measures nothing of interest.
    sizes = [("decode {} × 128", decode, DECODES), ("prefill {}", prefill, PROMPTS)]
    if not set(names) <= set(SHAPES):
        # Minutes, where a layer has no kernel of its own.
        sizes[1] = ("prefill {}", prefill, PROMPTS[:2])
    with torch.inference_mode():
        for name in names:
            model, lines = make(name, device), {}
            for title, measure, values in sizes:
                for value in values if device == "cuda" else values[:2]:
                    what = title.format(value)
                    try:
                        lines[what] = measure(model, device, value)
                    except torch.OutOfMemoryError:
                        print(f"{name:12} {what:28} out of memory", flush=True)
                        continue
                    print(f"{name:12} {what:28} {lines[what]:10.3f} ms", flush=True)
            found["models"][name] = lines
            del model
            if device == "cuda":
                torch.cuda.empty_cache()
            with open(out, "w") as file:
                json.dump(found, file, indent=1)


main()
