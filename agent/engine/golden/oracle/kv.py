"""Keys and values in E4M3: what a cache that rounds them makes of a model's answers."""

import torch
import transformers

LARGEST = 448.0
# How far from a tie a rounded value must be, relative to itself: what f32 sums differ by is less.
TIE_MARGIN = 2e-6


def scales(layers):
    """Of each layer's keys and values. Some values of the tiny models lie beyond what they let be stored."""
    return [(0.004 * (1 + layer), 0.0025 * (1 + layer)) for layer in range(layers)]


def tensors(layers):
    """The scales as files have them."""
    found = {}
    for layer, (key, value) in enumerate(scales(layers)):
        found[f"model.layers.{layer}.self_attn.k_scale"] = torch.tensor(key)
        found[f"model.layers.{layer}.self_attn.v_scale"] = torch.tensor(value)
    return found


class RoundedCache(transformers.DynamicCache):
    """Rounds what it is given; `margin` is the least distance of a value from a tie, `beyond` how many were too large."""

    def __init__(self, layers):
        super().__init__()
        self.scales, self.margin, self.beyond = scales(layers), float("inf"), 0

    def update(self, key_states, value_states, layer_idx, *args, **kwargs):
        key, value = self.scales[layer_idx]
        return super().update(self.rounded(key_states, key), self.rounded(value_states, value), layer_idx, *args, **kwargs)

    def rounded(self, values, scale):
        scale = torch.tensor(scale, dtype=torch.float32)
        stored = values / scale
        self.note(stored)
        return stored.clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn).float() * scale

    def note(self, stored):
        size = stored.abs()
        self.beyond += int((size > LARGEST).sum())
        size = size[size < LARGEST].double()
        step = torch.exp2(size.clamp(min=2.0**-6).log2().floor() - 3)
        steps = size / step
        self.margin = min(self.margin, float(((steps - steps.floor() - 0.5).abs() * step / size.clamp(min=1e-9)).min()))
