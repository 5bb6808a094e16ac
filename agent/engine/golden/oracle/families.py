"""The table of families: what their tiny checkpoints look like, and how they are stored.

Sizes are small but not round: heads share keys and values, head sizes differ from hidden / heads, windows are smaller
than a block of 64 keys or cross one, prompts cross two blocks. Epsilons are large where a family has another one that
is fixed in code (1e-6), so that a mix-up shows.
"""

import dataclasses

import torch
import transformers

from . import text

GROSS_EPS = 1e-3
WINDOW, FULL, LINEAR = "sliding_attention", "full_attention", "linear_attention"


@dataclasses.dataclass(frozen=True)
class Family:
    """One tiny checkpoint."""

    config: type
    values: dict
    # The seed of its weights. Not every seed will do: see `logits.check`.
    seed: int = 1
    dtype: torch.dtype = torch.bfloat16
    prompt: int = 160
    steps: int = 64
    # All rows of logits are kept, not only those of `logits.kept`.
    all_rows: bool = False
    shard_size: str = "5GB"
    # Its draft layers: none, `mtp.*` of Qwen, or the layer after the last of DeepSeek.
    draft: str | None = None
    # Experts are stored in MXFP4.
    mxfp4: bool = False
    # Matrices are stored in E4M3; of blocks of so many rows and columns, or of none.
    fp8: tuple | None = None
    # With scales of keys and values, and what becomes of the answers where these are kept in E4M3.
    kv: bool = False


def common(**values):
    defaults = dict(
        vocab_size=text.VOCAB,
        max_position_embeddings=4096,
        rms_norm_eps=1e-5,
        bos_token_id=text.BOS,
        eos_token_id=text.EOS,
        pad_token_id=text.PAD,
    )
    return {**defaults, **values}


def decoder(**values):
    defaults = dict(hidden_size=64, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2)
    return common(**{**defaults, **values})


def experts(**values):
    return decoder(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=16, **values)


def yarn(**values):
    """Frequencies of the first pairs stay, those of the last are divided by the factor; two lie between."""
    return dict(rope_type="yarn", rope_theta=10000.0, original_max_position_embeddings=64, **values)


# Three layers with a state and one with keys and values, twice: snapshots of states lie at two depths.
HYBRID = dict(
    num_hidden_layers=8, layer_types=[LINEAR, LINEAR, LINEAR, FULL] * 2,
    hidden_size=32, head_dim=32,
    linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=16,
    linear_conv_kernel_dim=4,
)
# A rotary part of 8 of 32 dimensions; text has one position for all three sections of its pairs.
MROPE = dict(
    rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25, mrope_section=[2, 1, 1],
    mrope_interleaved=True,
)
LATENT = dict(
    kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=16, v_head_dim=24,
    n_routed_experts=8, n_shared_experts=2, moe_intermediate_size=16, num_experts_per_tok=2,
    intermediate_size=48, first_k_dense_replace=1, n_group=4, topk_group=2,
)

# Layers with a window and without take turns. Hidden and intermediate sizes are multiples of MXFP4's blocks of 32.
GPT_OSS = decoder(
    num_hidden_layers=3, head_dim=24, intermediate_size=32, num_local_experts=8, num_experts_per_tok=2,
    sliding_window=24, attention_bias=True,
    rope_parameters=yarn(factor=32.0, beta_fast=32.0, beta_slow=1.0, truncate=False),
)

MISTRAL_FULL = decoder(
    num_hidden_layers=2, hidden_size=32, num_attention_heads=2, num_key_value_heads=1, intermediate_size=48,
    sliding_window=None, rope_theta=1000000.0,
)
QWEN3_MOE = experts(
    head_dim=24, intermediate_size=48, mlp_only_layers=[1], norm_topk_prob=True, rope_theta=1000000.0,
)

DEEPSEEK_V3 = decoder(
    **LATENT, num_hidden_layers=3, rms_norm_eps=GROSS_EPS, num_key_value_heads=4, q_lora_rank=32,
    norm_topk_prob=True, routed_scaling_factor=2.5, num_nextn_predict_layers=1,
    rope_parameters=yarn(factor=40.0, beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=0.707),
)

FAMILIES = {
    "llama": Family(
        transformers.LlamaConfig,
        common(hidden_size=64, intermediate_size=160, num_hidden_layers=3, num_attention_heads=4,
               num_key_value_heads=2, rope_theta=10000.0, tie_word_embeddings=True),
        dtype=torch.float32, prompt=40, all_rows=True,
    ),
    # head_dim is not hidden / heads, the output head is its own matrix, weights are in two shards.
    "qwen3": Family(
        transformers.Qwen3Config,
        common(hidden_size=96, intermediate_size=160, num_hidden_layers=3, num_attention_heads=6,
               num_key_value_heads=2, head_dim=32, rope_theta=1000000.0, tie_word_embeddings=False),
        seed=2, prompt=40, all_rows=True, shard_size="400KB",
    ),
    # Biases on q, k and v; windows across blocks from the third layer on.
    "qwen2": Family(
        transformers.Qwen2Config,
        decoder(intermediate_size=80, use_sliding_window=True, sliding_window=80, max_window_layers=2,
                rope_theta=1000000.0),
    ),
    "mistral": Family(
        transformers.MistralConfig,
        decoder(num_hidden_layers=3, head_dim=24, intermediate_size=80, sliding_window=24, rope_theta=10000.0),
    ),
    # Newer files have no window and no head_dim.
    "mistral_full": Family(transformers.MistralConfig, MISTRAL_FULL),
    # Four norms a layer, two ropes, a window across blocks; the embedding's scale is no power of two. Published files
    # say None for the cap of the logits.
    "gemma3": Family(
        transformers.Gemma3TextConfig,
        decoder(hidden_size=80, head_dim=24, intermediate_size=64, query_pre_attn_scalar=20, sliding_window=80,
                layer_types=[WINDOW, WINDOW, FULL, WINDOW], final_logit_softcapping=1.5,
                rope_parameters={
                    FULL: dict(rope_type="linear", factor=8.0, rope_theta=1000000.0),
                    WINDOW: dict(rope_type="default", rope_theta=10000.0),
                }),
        seed=4,
    ),
    # The second layer is dense.
    "qwen3_moe": Family(transformers.Qwen3MoeConfig, QWEN3_MOE),
    "qwen3_next": Family(
        transformers.Qwen3NextConfig,
        experts(**HYBRID, rms_norm_eps=GROSS_EPS, shared_expert_intermediate_size=24, norm_topk_prob=True,
                rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25)),
        seed=6, draft="qwen",
    ),
    "qwen3_5": Family(
        transformers.Qwen3_5TextConfig,
        decoder(**HYBRID, rms_norm_eps=GROSS_EPS, intermediate_size=64, rope_parameters=MROPE,
                mtp_num_hidden_layers=1, tie_word_embeddings=True),
        draft="qwen",
    ),
    # With a vision tower that is not read, as published models have one.
    "qwen3_5_moe": Family(
        transformers.Qwen3_5MoeConfig,
        dict(
            text_config=experts(**HYBRID, rms_norm_eps=GROSS_EPS, shared_expert_intermediate_size=24,
                                rope_parameters=MROPE, mtp_num_hidden_layers=1),
            vision_config=dict(depth=1, hidden_size=8, intermediate_size=16, num_heads=2, out_hidden_size=32,
                               num_position_embeddings=16, patch_size=4, deepstack_visual_indexes=[]),
            image_token_id=380, video_token_id=381, vision_start_token_id=382, vision_end_token_id=383,
        ),
        draft="qwen",
    ),
    # cos and sin are multiplied by mscale / mscale_all_dim, which is 1 in published files.
    "deepseek_v3": Family(
        transformers.DeepseekV3Config,
        DEEPSEEK_V3,
        draft="deepseek",
    ),
    "deepseek_v2": Family(
        transformers.DeepseekV2Config,
        decoder(**{**LATENT, "num_experts_per_tok": 3}, rms_norm_eps=GROSS_EPS, num_key_value_heads=4,
                q_lora_rank=None, norm_topk_prob=False, topk_method="group_limited_greedy", routed_scaling_factor=1.5,
                rope_parameters=yarn(factor=40.0, beta_fast=32, beta_slow=1, mscale=0.707, mscale_all_dim=0.707)),
        seed=12,
    ),
    "gpt_oss": Family(transformers.GptOssConfig, GPT_OSS),
    # The same weights in the form that is published: so their logits are the same, too.
    "gpt_oss_mxfp4": Family(transformers.GptOssConfig, GPT_OSS, mxfp4=True),
    # Blocks that end within matrices, both ways.
    "qwen3_moe_fp8": Family(transformers.Qwen3MoeConfig, QWEN3_MOE, fp8=((24, 40),)),
    # Of the matrix that is multiplied from both sides, one side is expanded.
    "deepseek_v3_fp8": Family(transformers.DeepseekV3Config, DEEPSEEK_V3, seed=3, fp8=((24, 40),)),
    # A scale for a whole matrix.
    "mistral_full_fp8": Family(transformers.MistralConfig, MISTRAL_FULL, prompt=40, fp8=(None,), kv=True),
}
