"""Makes smollm2_expected.json: what transformers answers, greedily and in f32, from SmolLM2's GGUF file.

    python make_smollm2.py PATH/TO/SmolLM2-135M-Instruct.Q4_1.gguf

Ten prompts of about 20 to 1,500 tokens, 64 tokens each, past the end of the answer if need be. The five largest logits
of every step are kept, so that a difference can be weighed. Prompts are tokenised by llama.cpp, since transformers
does not carry out the file's way of cutting text into words (`tokenizer.ggml.pre`: smollm splits digits first).
"""

import hashlib
import json
import pathlib
import sys

import torch
from llama_cpp import Llama
from transformers import AutoModelForCausalLM

STEPS = 64
TOP = 5
PLACES = ["Lyon", "Porto", "Graz", "Turku", "Bergen", "Gdansk", "Cork", "Split", "Ghent", "Varna"]
GOODS = ["green tea", "copper wire", "oak boards", "sea salt", "linen", "glass jars", "olive oil", "paper", "nails"]


def ledger(lines):
    """A list that a program can make as long as wanted, and of which something can be asked."""
    rows = []
    for i in range(lines):
        place, goods = PLACES[i * 7 % len(PLACES)], GOODS[i * 5 % len(GOODS)]
        rows.append(f"{i + 1}. The warehouse in {place} holds {(i * 37) % 400 + 12} boxes of {goods}.")
    return "\n".join(rows)


QUESTIONS = [
    "What is the capital of France?",
    "Write a short poem about a river in winter.",
    "Explain why the sky is blue, as you would to a child of six who likes boats.",
    "Write a Python function that returns the n-th Fibonacci number, and explain each line of it.",
    "Here are five words: lamp, winter, bread, window, letter. Use each of them once in a story about a postman who "
    "loses his way in the mountains, and end the story with a question that the reader can answer.",
    "Which warehouse holds the most boxes, and of what?\n\n" + ledger(8),
    "Summarise this list in two sentences.\n\n" + ledger(16),
    "Name three places in this list and what they hold.\n\n" + ledger(28),
    "How many different goods are in this list? Name them.\n\n" + ledger(44),
    "Write a letter to the owner of these warehouses about what you notice in this list.\n\n" + ledger(80),
]


def prompt(question):
    return (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
    )


def answer(model, ids):
    out = model(torch.tensor([ids]), use_cache=True, logits_to_keep=1)
    output, top = [], []
    for _ in range(STEPS):
        largest = out.logits[0, -1].topk(TOP)
        output.append(int(largest.indices[0]))
        top.append([[int(i), round(float(v), 5)] for i, v in zip(largest.indices, largest.values)])
        step = torch.tensor([output[-1:]])
        out = model(step, past_key_values=out.past_key_values, use_cache=True)
    return output, top


def main():
    path = pathlib.Path(sys.argv[1])
    source = dict(pretrained_model_name_or_path=path.parent, gguf_file=path.name)
    tokenizer = Llama(str(path), vocab_only=True, verbose=False)
    model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32, attn_implementation="eager").eval()
    prompts = []
    with torch.no_grad():
        for question in QUESTIONS:
            text = prompt(question)
            ids = tokenizer.tokenize(text.encode(), add_bos=False, special=True)
            output, top = answer(model, ids)
            print(len(ids), tokenizer.detokenize(output)[:80], flush=True)
            prompts.append({"text": text, "input_ids": ids, "output_ids": output, "top": top})
    expected = {"sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "prompts": prompts}
    target = pathlib.Path(__file__).parent / "smollm2_expected.json"
    target.write_text(json.dumps(expected, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
