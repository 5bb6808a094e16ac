"""MXFP4 as published for gpt_oss: 32 neighbouring inputs of an output share a power of two."""

import torch

VALUES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
BLOCK = 32
EXPONENT_BIAS = 127


def quantise(weight):
    """[expert, in, out] to blocks [expert, out, in / 32, 16] of two values a byte, low half first, and their scales.

    Also the values that these stand for, in the form of `weight`; bf16 holds them exactly.
    """
    parts = weight.detach().float().transpose(1, 2).unflatten(-1, (-1, BLOCK))
    # The largest of a block becomes 4 to 8 of its scale, of which 6 is the largest that there is.
    exponent = parts.abs().amax(-1, keepdim=True).log2().floor() - 2
    scaled = parts * torch.exp2(-exponent)
    nearest = (scaled.abs()[..., None] - VALUES).abs().argmin(-1)
    code = (nearest + 8 * (scaled < 0)).to(torch.uint8)
    blocks = code[..., 0::2] | code[..., 1::2] << 4
    scales = (exponent[..., 0] + EXPONENT_BIAS).to(torch.uint8)
    return blocks, scales, dequantise(blocks, scales)


def dequantise(blocks, scales):
    """The weight [expert, in, out], in f32."""
    table = torch.cat([VALUES, -VALUES])
    values = torch.stack([table[(blocks & 15).long()], table[(blocks >> 4).long()]], -1).flatten(-2)
    return (values * torch.exp2(scales.float() - EXPONENT_BIAS)[..., None]).flatten(-2).transpose(1, 2).contiguous()
