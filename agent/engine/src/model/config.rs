//! `ModelConfig`: the description of a model layer by layer, in one struct for all families, read
//! from a Hugging Face folder ([`hf`]) or from a GGUF file's metadata ([`gguf`]) and checked before
//! any weight is read. A family (`model/family/*.rs`) says which keys make which layers.

mod check;
mod family;
mod ffn;
pub(crate) mod fields;
pub mod gguf;
pub mod hf;

use crate::weights::Fp8;
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;

pub use family::Family;
pub use ffn::{DenseFfn, ExpertGroups, Ffn, Glu, GroupScore, MoeFfn, Scores, SharedExpert};

/// The description of a model. Its JSON form is part of `kv_compat`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelConfig {
    pub family: Family,
    pub hidden_size: usize,
    pub vocab_size: usize,
    /// Longest sequence that the model supports, in tokens.
    pub context_len: usize,
    pub rms_norm_eps: f32,
    /// A norm's weight is stored as w and applied as 1 + w, except for the norms within gated delta layers.
    pub norm_plus_one: bool,
    /// Multiplies what is read from the embedding table.
    pub embed_scale: Option<f32>,
    /// A logit becomes `cap · tanh(logit / cap)`.
    pub final_softcap: Option<f32>,
    /// What layers rotate by; attention names one by its place here.
    pub ropes: Vec<Rope>,
    pub layers: Vec<LayerConfig>,
    /// The layer that drafts, where its entries are kept beside those of the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draft_layer: Option<LayerConfig>,
    /// The output head is the embedding table.
    pub tie_word_embeddings: bool,
    /// How matrices of E4M3 are scaled, in a folder that has some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fp8: Option<Fp8>,
    pub bos_token_id: Option<u32>,
    /// Tokens that end an answer; may be empty.
    pub eos_token_ids: Vec<u32>,
}

/// A layer: a mixer and a feed-forward, each after a norm and added to the residual stream.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LayerConfig {
    pub mixer: Mixer,
    pub ffn: Ffn,
}

/// What lets the tokens of a sequence see each other in a layer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mixer {
    Attention(Attention),
    Mla(Mla),
    GatedDelta(GatedDelta),
}

/// Grouped-query attention.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Attention {
    /// Query heads.
    pub num_heads: usize,
    pub num_kv_heads: usize,
    pub head_dim: usize,
    /// Of the products of queries and keys.
    pub scale: f32,
    /// A place in [`ModelConfig::ropes`].
    pub rope: usize,
    /// Queries and keys are normed per head before they are rotated.
    pub qk_norm: bool,
    pub qkv_bias: bool,
    pub o_bias: bool,
    /// Each query head has a score that takes part in the softmax and has no value.
    pub sinks: bool,
    /// Keys that a query sees, its own included; `None`: all before it.
    pub window: Option<usize>,
    /// Each query head has a gate beside it: its result is multiplied by the gate's sigmoid.
    pub gated: bool,
    /// What is added to the residual stream is normed before.
    pub out_norm: bool,
}

/// Multi-head latent attention: the keys and values of all heads are products of one narrow row per token, the
/// latent, which is all that is kept of it beside one rotated key.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Mla {
    pub num_heads: usize,
    /// Width of the product between two that make queries; `None`: one makes them.
    pub q_lora_rank: Option<usize>,
    /// Elements of a latent.
    pub kv_lora_rank: usize,
    /// Elements of a query head that are not rotated.
    pub nope_dim: usize,
    /// Elements that are, and those of the rotated key.
    pub rope_dim: usize,
    /// Elements of a head's value.
    pub v_dim: usize,
    /// Of the products of queries and keys.
    pub scale: f32,
    /// A place in [`ModelConfig::ropes`].
    pub rope: usize,
    /// Pairs that are rotated are stored as neighbours.
    pub rope_interleaved: bool,
}

/// A recurrent layer: a short convolution, the gated delta rule, and a norm with a gate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct GatedDelta {
    /// Heads of queries and of keys.
    pub num_k_heads: usize,
    /// A multiple of the k heads.
    pub num_v_heads: usize,
    pub k_dim: usize,
    pub v_dim: usize,
    /// Rows that the convolution sees, the token's own included.
    pub taps: usize,
}

/// A rotation of queries and keys by their position.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rope {
    /// Elements of a head that are rotated, from the first on.
    pub rotary_dim: usize,
    pub theta: f64,
    pub scaling: RopeScaling,
}

/// How rotary frequencies are stretched beyond the trained context.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase", tag = "type")]
pub enum RopeScaling {
    None,
    /// All frequencies divided by `factor`.
    Linear {
        factor: f64,
    },
    /// Low frequencies divided by `factor`, high ones kept, a ramp between.
    Llama3 {
        factor: f64,
        low_freq_factor: f64,
        high_freq_factor: f64,
        original_context_len: f64,
    },
    /// Pairs that turn less than `beta_slow` times in the original context are divided by `factor`, those that
    /// turn more than `beta_fast` times kept, with a ramp over the pairs between.
    Yarn {
        factor: f64,
        beta_fast: f64,
        beta_slow: f64,
        original_context_len: f64,
        /// The ramp begins and ends at whole pairs.
        truncate: bool,
        /// Multiplies cosines and sines.
        attention_factor: f32,
    },
}

/// Values of `generation_config.json` that replace SGLang's defaults; they do not affect the
/// meaning of KV.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SamplingDefaults {
    pub temperature: Option<f32>,
    pub top_p: Option<f32>,
    pub top_k: Option<i32>,
    pub min_p: Option<f32>,
    pub repetition_penalty: Option<f32>,
}

/// Why a model's configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {path}: {source}")]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{path} is not valid JSON: {source}; fetch it again")]
    Json {
        path: PathBuf,
        source: serde_json::Error,
    },
    #[error("{file}: {key} is missing; the model cannot be built without it")]
    Missing { file: String, key: String },
    #[error("{file}: {key} is {value}, expected {expected}")]
    Invalid {
        file: String,
        key: String,
        value: String,
        expected: String,
    },
    #[error("{file}: {key} is {value}, which is not supported; supported: {supported}")]
    Unsupported {
        file: String,
        key: String,
        value: String,
        supported: String,
    },
    #[error(
        "{file}: {key} is {value}, a key that {family} models are not known to have, so it may \
         change what the model computes; remove it if it does not"
    )]
    Unknown {
        file: String,
        key: String,
        value: String,
        family: Family,
    },
}

// === impl ModelConfig ===

impl ModelConfig {
    /// All layers that keep something of a sequence, the draft layer last.
    pub(crate) fn kept_layers(&self) -> impl Iterator<Item = &LayerConfig> {
        self.layers.iter().chain(&self.draft_layer)
    }
}

// === impl Attention ===

impl Attention {
    /// Over all earlier keys, without norms and biases, rotated by the first rope. `None`: as many key-value heads as
    /// heads.
    pub fn plain(num_heads: usize, num_kv_heads: Option<usize>, head_dim: usize) -> Self {
        Self {
            num_heads,
            num_kv_heads: num_kv_heads.unwrap_or(num_heads),
            head_dim,
            scale: narrow((head_dim as f64).powf(-0.5)),
            rope: 0,
            qk_norm: false,
            qkv_bias: false,
            o_bias: false,
            sinks: false,
            window: None,
            gated: false,
            out_norm: false,
        }
    }
}

// === impl Rope ===

impl Rope {
    /// Multiplies cosines and sines.
    pub const fn attention_factor(&self) -> f32 {
        match self.scaling {
            RopeScaling::None | RopeScaling::Linear { .. } | RopeScaling::Llama3 { .. } => 1.0,
            RopeScaling::Yarn {
                attention_factor, ..
            } => attention_factor,
        }
    }
}

// === impl Mla ===

impl Mla {
    /// Elements of a query head.
    pub const fn q_dim(&self) -> usize {
        self.nope_dim + self.rope_dim
    }

    /// Width of the joined query heads.
    pub const fn q_width(&self) -> usize {
        self.num_heads * self.q_dim()
    }

    /// Elements that are kept of a token: its latent and its rotated key.
    pub const fn key_dim(&self) -> usize {
        self.kv_lora_rank + self.rope_dim
    }

    /// Width of the joined heads' values.
    pub const fn v_width(&self) -> usize {
        self.num_heads * self.v_dim
    }
}

// === impl GatedDelta ===

impl GatedDelta {
    /// Width of the joined q, k and v rows.
    pub const fn qkv_width(&self) -> usize {
        2 * self.num_k_heads * self.k_dim + self.v_width()
    }

    /// Width of the joined v heads.
    pub const fn v_width(&self) -> usize {
        self.num_v_heads * self.v_dim
    }
}

// === impl Attention ===

impl Attention {
    /// Width of the joined q, k and v rows.
    pub const fn qkv_width(&self) -> usize {
        (self.num_heads + 2 * self.num_kv_heads) * self.head_dim
    }

    /// Width of a row with the gates of the query heads, if there are any.
    pub const fn row_width(&self) -> usize {
        let gates = if self.gated { self.q_width() } else { 0 };
        self.qkv_width() + gates
    }

    /// Width of the joined query heads.
    pub const fn q_width(&self) -> usize {
        self.num_heads * self.head_dim
    }
}

/// A number of a config in the precision that kernels take.
#[expect(
    clippy::cast_possible_truncation,
    reason = "an epsilon keeps its first 24 bits, which is all that kernels use"
)]
pub(crate) fn narrow(number: f64) -> f32 {
    number as f32
}

pub(crate) fn invalid(
    file: &str,
    key: &str,
    value: impl fmt::Display,
    expected: String,
) -> ConfigError {
    ConfigError::Invalid {
        file: file.to_owned(),
        key: key.to_owned(),
        value: value.to_string(),
        expected,
    }
}

#[cfg(test)]
mod tests;
