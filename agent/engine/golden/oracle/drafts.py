"""Draft layers (multi-token prediction): their weights under published names, and their logits.

Entry i of a draft layer sees token i + 1 and the model's state i after its last norm, and drafts token i + 2:
`head(norm(layer(project([norm(embed(token)) ; norm(state)]))))`. Further ones of a chain take the output of the draft
layer's last norm for the state. Embedding and head are the model's. transformers has no such layer for Qwen, so it is
made of the model's own decoder layer here; DeepSeek's is transformers'.

`draft.safetensors` has `rows` (which entries) and their `logits`; and of the chain that goes on from the last entry,
`chain_tokens` and `chain_logits`: token c was drafted by row c, the first one by the last entry.
"""

import copy

import torch
from torch import nn
from transformers.modeling_layers import MtpLayer

from . import forms

CHAIN = 3
FIRST_ROW = 60


class QwenDraft(nn.Module):
    """`mtp.*` of Qwen3-Next and Qwen3.5: a full attention layer of the family."""

    def __init__(self, config, layer_class, norm_class):
        super().__init__()
        self.config = config
        hidden, eps = config.hidden_size, config.rms_norm_eps
        self.fc = nn.Linear(2 * hidden, hidden, bias=False)
        self.pre_fc_norm_embedding = norm_class(hidden, eps=eps)
        self.pre_fc_norm_hidden = norm_class(hidden, eps=eps)
        self.layers = nn.ModuleList([layer_class(config, 0)])
        self.norm = norm_class(hidden, eps=eps)

    def forward(self, embedded, state, **kwargs):
        both = torch.cat([self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(state)], -1)
        return self.norm(self.layers[0](self.fc(both), **kwargs))


def build(kind, model):
    """A draft layer for a model, not yet initialised."""
    decoder = model.get_decoder()
    config = copy.deepcopy(decoder.config)
    layer_class, norm_class = type(decoder.layers[-1]), type(decoder.norm)
    if kind == "deepseek":
        return MtpLayer(config.get_mtp_config(), layer_class, norm_class, 0)
    config.layer_types = ["full_attention"]
    return QwenDraft(config, layer_class, norm_class)


def published(kind, model, draft):
    """The draft's tensors under the names that published checkpoints give them.

    Those of DeepSeek also repeat embedding and head, `embed_tokens` and `shared_head.head`; here these are left out.
    """
    tensors = {name.removeprefix("mtp_block."): tensor for name, tensor in draft.state_dict().items()}
    forms.split(tensors)
    if kind == "qwen":
        return {f"mtp.{name}": tensor for name, tensor in tensors.items()}
    layer = f"model.layers.{model.config.num_hidden_layers}"
    return {f"{layer}.{name.replace('post_norm.', 'shared_head.norm.')}": tensor for name, tensor in tensors.items()}


def golden(model, draft, run, rows):
    """The contents of `draft.safetensors`."""
    decoder, head = model.get_decoder(), model.get_output_embeddings()

    def outputs(tokens, states):
        """Of all entries at once, without a cache."""
        embedded = decoder.embed_tokens(torch.tensor([tokens[1:]]))
        length = embedded.shape[1]
        mask = torch.full((length, length), torch.finfo(torch.float32).min).triu(1)[None, None]
        positions = torch.arange(length)[None]
        cos_and_sin = decoder.rotary_emb(embedded, positions)
        return draft(embedded, states[None], position_embeddings=cos_and_sin, attention_mask=mask,
                     position_ids=positions, past_key_values=None)[0]

    with torch.no_grad():
        tokens, states = list(run.tokens), run.hidden[: len(run.tokens) - 1]
        drafted = outputs(tokens, states)
        chain = []
        for _ in range(CHAIN):
            chain.append(head(drafted[-1]))
            tokens.append(int(chain[-1].argmax()))
            states = torch.cat([states, drafted[-1:]])
            drafted = outputs(tokens, states)
    rows = [row for row in rows if FIRST_ROW <= row < len(run.tokens) - 1]
    with torch.no_grad():
        logits = head(drafted[rows])
    return {
        "rows": torch.tensor(rows, dtype=torch.int32),
        "logits": logits.float().contiguous(),
        "chain_tokens": torch.tensor(tokens[len(run.tokens) :], dtype=torch.int32),
        "chain_logits": torch.stack(chain).float(),
    }
