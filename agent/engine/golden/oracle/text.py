"""The tokenizer and the text of all tiny checkpoints.

The tokenizer is a file that is kept, since versions of the tokenizers library learn different words from one text.
"""

import pathlib

from transformers import PreTrainedTokenizerFast

GOLDEN = pathlib.Path(__file__).parent.parent
VOCAB = 384
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
PAD, BOS, EOS = range(3)

CORPUS = """The prefill worker reads the prompt once and writes a key and a value for every token it sees.
The decode worker waits until those pages have arrived, then answers one token after another.
A page that is still being written must never be given to someone else. Count the pages, count them again:
free, cached, held, and the few that wait in quarantine. 1, 2, 3, 16, 64, 128, 1024 tokens; 0.5 or 2.25 seconds.
When the river rises the miller opens the gate, and when it falls he closes it; there is no hurry in either.
What was asked? "What is the capital of France?" Who answered? The nearest one who knew. Where is the rest of it?
They walked from the house to the harbour in the morning, and in the evening they walked from the harbour home.
for (i = 0; i < n; i += 1) { total = total + items[i]; } return total / n;
"""

# Read at once: the folder that holds them is itself among what is made.
FILES = {
    name: (GOLDEN / "tiny-llama" / name).read_bytes()
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
}
CHAT_TEMPLATE = FILES["chat_template.jinja"].decode()
TOKENIZER = PreTrainedTokenizerFast.from_pretrained(GOLDEN / "tiny-llama")


def prompt(length):
    """The first tokens of the text."""
    tokens = TOKENIZER.encode(CORPUS)
    assert len(tokens) >= length, f"the text has {len(tokens)} tokens, and {length} are wanted"
    return tokens[:length]
