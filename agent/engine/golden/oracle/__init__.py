"""Tiny checkpoints of every model family, and what Hugging Face transformers computes with them."""
