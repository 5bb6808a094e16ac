"""Writes the tokenizer of a GGUF file in Hugging Face's form, which load tools read.

usage: tokenizer.py MODEL.gguf FOLDER
"""

import sys
from pathlib import Path

from transformers import AutoTokenizer

model, folder = map(Path, sys.argv[1:])
tokenizer = AutoTokenizer.from_pretrained(model.parent, gguf_file=model.name)
tokenizer.save_pretrained(folder)
