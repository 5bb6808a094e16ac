"""Makes GGUF files by llama.cpp's own converter, and what llama.cpp answers with them. `make converted` runs it, and then
the engine's tests on what it wrote; nothing of it is committed.

    python make_converted.py --llama-cpp FOLDER --pieces FILE... --out FOLDER

FOLDER is llama.cpp's source, with `convert_hf_to_gguf.py`; each FILE a vocabulary of SentencePiece. For each model there
is `NAME.gguf`, with weights in F32, and `NAME.golden.safetensors`, as `oracle/logits.py` says; for each vocabulary
`NAME.gguf` and `NAME.texts.json`, texts with their tokens.
"""

import argparse
import ctypes
import json
import logging
import os
import pathlib
import shutil
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ["TQDM_DISABLE"] = "1"

import llama_cpp
import numpy
import torch
import transformers
from safetensors.torch import save_file
from sentencepiece import SentencePieceProcessor

from oracle import text
from oracle.families import FAMILIES
from oracle.weights import randomise

# Windows, blocks of 64 keys and the prompt's end are crossed.
PROMPT, STEPS = 160, 32
# One layer in six attends to all, as llama.cpp has it where the file says nothing.
GEMMA3 = dict(num_hidden_layers=7, layer_types=None, sliding_window_pattern=6, query_pre_attn_scalar=24)
MODELS = {
    "llama": ("llama", {}),
    "qwen2": ("qwen2", dict(use_sliding_window=False)),
    "qwen3": ("qwen3", {}),
    "qwen3-moe": ("qwen3_moe", dict(mlp_only_layers=[])),
    "mistral": ("mistral_full", {}),
    "gemma3": ("gemma3", GEMMA3),
    # llama.cpp knows by the number of layers that queries are scaled by hidden / heads.
    "gemma3-of-62-layers": ("gemma3", {**GEMMA3, "num_hidden_layers": 62, "query_pre_attn_scalar": 20}),
}
TEXTS = [
    *text.CORPUS.splitlines(), text.CORPUS, "", " ", "  ", "   a", "a   ", "\n", "\n\n\n", "\t\ttabs", "été, à l'œuvre",
    "你好，世界", "🦙🦙 and 👩‍👩‍👧", "▁", "<unk>", "a<s>b</s>c", "[INST] hello [/INST]", "x" * 100, "1234567890.5",
    "def f(x):\n    return x  # two\n\n\nclass A:\n\tpass\n", "\u0000\u0001", "ﬁ ﬂ Å", "مرحبا بالعالم", "नमस्ते",
]


def converter(folder):
    """llama.cpp's, which knows tokenizers by a hash; that of the tiny checkpoints splits words as GPT-2's."""
    sys.path[:0] = [str(folder), str(folder / "gguf-py")]
    import convert_hf_to_gguf
    logging.disable(logging.WARNING)
    from conversion import base
    base.TextModel.get_vocab_base_pre = lambda *_: "gpt-2"

    def convert(model, target, *options):
        sys.argv = ["convert_hf_to_gguf.py", str(model), "--outfile", str(target), "--outtype", "f32", *options]
        convert_hf_to_gguf.main()

    return convert


def save_model(folder, family, values):
    config = family.config(**{**family.values, **values})
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    randomise(model, model.config, family.seed)
    model.save_pretrained(folder)
    # Newer than the converter: the names it reads.
    path = folder / "config.json"
    written = json.loads(path.read_text())
    if "sliding_window_pattern" in values:
        written["sliding_window_pattern"] = values["sliding_window_pattern"]
    path.write_text(json.dumps(written))
    for name, contents in text.FILES.items():
        (folder / name).write_bytes(contents)


class LlamaCpp:
    """llama.cpp with keys and values in F32 and without its fused attention, which rounds."""

    def __init__(self, path, vocab_only=False):
        params = llama_cpp.llama_model_default_params()
        params.vocab_only = vocab_only
        self.model = llama_cpp.llama_model_load_from_file(os.fsencode(path), params)
        assert self.model, f"llama.cpp does not load {path}"
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)

    def tokens(self, content):
        data = content.encode()
        room = (llama_cpp.llama_token * (len(data) + 16))()
        count = llama_cpp.llama_tokenize(self.vocab, data, len(data), room, len(room), False, True)
        assert count >= 0, content
        return list(room[:count])

    def greedy(self, prompt, steps):
        """Tokens, and a row of logits for each."""
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = 512
        params.type_k = params.type_v = llama_cpp.GGML_TYPE_F32
        params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        params.n_threads = params.n_threads_batch = 2
        context = llama_cpp.llama_init_from_model(self.model, params)
        assert context, "llama.cpp has no context"
        width = llama_cpp.llama_vocab_n_tokens(self.vocab)
        batch = llama_cpp.llama_batch_init(len(prompt), 0, 1)
        tokens, rows = list(prompt), []
        begin = 0
        while True:
            batch.n_tokens = len(tokens) - begin
            for i, token in enumerate(tokens[begin:]):
                batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, begin + i, 1
                batch.seq_id[i][0], batch.logits[i] = 0, True
            assert llama_cpp.llama_decode(context, batch) == 0
            for i in range(batch.n_tokens):
                row = llama_cpp.llama_get_logits_ith(context, i)
                rows.append(numpy.ctypeslib.as_array(row, (width,)).copy())
            if len(tokens) == len(prompt) + steps:
                llama_cpp.llama_free(context)
                return tokens, numpy.stack(rows)
            begin = len(tokens)
            tokens.append(int(rows[-1].argmax()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--llama-cpp", type=pathlib.Path, required=True)
    parser.add_argument("--pieces", type=pathlib.Path, nargs="*", default=[])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    given = parser.parse_args()
    silence = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(silence, ctypes.c_void_p())
    llama_cpp.llama_backend_init()
    convert = converter(given.llama_cpp)
    shutil.rmtree(given.out, ignore_errors=True)
    given.out.mkdir(parents=True)
    source = given.out / "source"
    for name, (family, values) in MODELS.items():
        save_model(source, FAMILIES[family], values)
        convert(source, given.out / f"{name}.gguf")
        shutil.rmtree(source)
        tokens, rows = LlamaCpp(given.out / f"{name}.gguf").greedy(text.prompt(PROMPT), STEPS)
        save_file({
            "tokens": torch.tensor(tokens, dtype=torch.int32),
            "prompt_len": torch.tensor([PROMPT], dtype=torch.int32),
            "logits": torch.tensor(rows),
        }, given.out / f"{name}.golden.safetensors")
        print(f"{name}: {len(set(tokens[PROMPT:]))} distinct tokens")
    for pieces in given.pieces:
        size = dict(vocab_size=SentencePieceProcessor(str(pieces)).vocab_size())
        # Gemma's texts begin without a space, Mistral's with one.
        for family, values in (("mistral_full", {}), ("gemma3", GEMMA3)):
            name = f"{family}-{pieces.name}"
            save_model(source, FAMILIES[family], {**values, **size})
            shutil.copy(pieces, source / "tokenizer.model")
            for other in ("tokenizer.json", "tokenizer_config.json"):
                (source / other).unlink()
            convert(source, given.out / f"{name}.gguf", "--vocab-only")
            shutil.rmtree(source)
            vocabulary = LlamaCpp(given.out / f"{name}.gguf", vocab_only=True)
            texts = [{"text": content, "ids": vocabulary.tokens(content)} for content in TEXTS]
            (given.out / f"{name}.texts.json").write_text(json.dumps(texts))
            print(f"{name}: {len(texts)} texts")


if __name__ == "__main__":
    main()
