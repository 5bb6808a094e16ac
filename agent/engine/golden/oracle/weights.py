"""Random weights that hide nothing.

A norm that is never applied, a bias that is never added, a state that forgets at once: with the weights that models
start with (zeros, ones) the logits are the same. So everything that starts as 0 or 1 is moved off it.
"""

import math

import torch


def randomise(model, config, seed):
    """Weights large enough that logits differ clearly and greedy text does not settle on one token.

    `model` may be part of one; `config` is that of the text model.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            weight.copy_(value(config, name, weight, noise))
        for name, buffer in model.named_buffers():
            if "e_score_correction_bias" in name:
                buffer.copy_(0.2 * torch.randn(buffer.shape, generator=generator))


def value(config, name, start, noise):
    """What a parameter becomes, of what it starts as and of standard normal noise of its shape."""
    if "norm" in name and name.endswith("weight"):
        return start + 0.3 * noise  # start is 1, or 0 where the norm multiplies by 1 + w
    if "embed" in name:
        # Gemma multiplies embeddings by the root of their size; unscaled, they would outweigh what layers add.
        return noise * 0.6 / (config.hidden_size**0.5 if config.model_type == "gemma3_text" else 1)
    if name.endswith("A_log"):
        return noise - 2.5  # states that remember 5 to 50 tokens
    if name.endswith("dt_bias"):
        return start + 0.5 * noise
    if name.endswith("sinks"):
        return noise
    if "bias" in name:
        return 0.3 * noise
    if "conv1d" in name:
        return one_small_head(config, noise * 0.7)
    return noise * 1.2 / inputs(config, name, start.shape) ** 0.5


def inputs(config, name, shape):
    """How many products a weight's outputs are sums of."""
    if "experts." in name:  # [expert, in, out] in gpt_oss, elsewhere [expert, out, in]
        return shape[1] if config.model_type == "gpt_oss" else shape[-1]
    return math.prod(shape[1:])


def one_small_head(config, conv):
    """Queries and keys of the first head so small that the epsilon under their l2 norm shows."""
    dim = config.linear_key_head_dim
    for first in (0, dim * config.linear_num_key_heads):
        conv[first : first + dim] *= 1e-3
    return conv
