//! `ModelConfig`: the description of a model, in one struct for all families, read from a Hugging
//! Face folder ([`hf`]) or from a GGUF file's metadata ([`gguf`]) and checked before any weight is
//! read.

mod fields;
pub mod gguf;
pub mod hf;

use serde::Serialize;
use std::fmt;
use std::path::PathBuf;

/// A family of networks that this engine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    Llama,
    /// Like llama, with a norm over each query and key head, and a separate head dim.
    Qwen3,
}

/// The description of a model. Its JSON form is part of `kv_compat`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelConfig {
    pub family: Family,
    pub hidden_size: usize,
    /// Width of the feed-forward layer.
    pub intermediate_size: usize,
    pub num_layers: usize,
    /// Query heads.
    pub num_heads: usize,
    pub num_kv_heads: usize,
    pub head_dim: usize,
    pub vocab_size: usize,
    /// Longest sequence that the model supports, in tokens.
    pub context_len: usize,
    pub rms_norm_eps: f32,
    pub rope_theta: f64,
    pub rope_scaling: RopeScaling,
    /// The output head is the embedding table.
    pub tie_word_embeddings: bool,
    pub bos_token_id: Option<u32>,
    /// Tokens that end an answer; may be empty.
    pub eos_token_ids: Vec<u32>,
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
}

// === impl Family ===

impl Family {
    pub const ALL: [Self; 2] = [Self::Llama, Self::Qwen3];

    /// `model_type` of config.json and `general.architecture` of GGUF, which agree here.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen3 => "qwen3",
        }
    }

    /// The class in config.json's `architectures`.
    pub const fn architecture(self) -> &'static str {
        match self {
            Self::Llama => "LlamaForCausalLM",
            Self::Qwen3 => "Qwen3ForCausalLM",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|family| family.name() == name)
    }

    /// The names of all families, for messages.
    pub fn supported() -> String {
        Self::ALL.map(Self::name).join(", ")
    }

    /// Queries and keys are normed per head before they are rotated.
    pub const fn has_qk_norm(self) -> bool {
        matches!(self, Self::Qwen3)
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

// === impl ModelConfig ===

/// Bounds beyond which a number in a config is a mistake.
const MAX_LAYERS: usize = 1024;
const MAX_WIDTH: usize = 1 << 20;
const MAX_VOCAB: usize = 1 << 22;
const MAX_HEAD_DIM: usize = 1024;
const MAX_CONTEXT: usize = 1 << 26;

impl ModelConfig {
    /// Width of the joined q, k and v rows.
    pub const fn qkv_width(&self) -> usize {
        (self.num_heads + 2 * self.num_kv_heads) * self.head_dim
    }

    /// Width of the joined query heads.
    pub const fn q_width(&self) -> usize {
        self.num_heads * self.head_dim
    }

    /// Checks that involve several keys.
    ///
    /// # Errors
    /// Names the key, its value and what was expected.
    pub(crate) fn check(&self, file: &str) -> Result<(), ConfigError> {
        let within = |key: &str, value: usize, max: usize| {
            if (1..=max).contains(&value) {
                Ok(())
            } else {
                Err(invalid(file, key, value, format!("1 to {max}")))
            }
        };
        within("hidden size", self.hidden_size, MAX_WIDTH)?;
        within("feed-forward size", self.intermediate_size, MAX_WIDTH)?;
        within("number of layers", self.num_layers, MAX_LAYERS)?;
        within("number of attention heads", self.num_heads, MAX_WIDTH)?;
        within("number of key-value heads", self.num_kv_heads, MAX_WIDTH)?;
        within("head size", self.head_dim, MAX_HEAD_DIM)?;
        within("vocabulary size", self.vocab_size, MAX_VOCAB)?;
        within("context length", self.context_len, MAX_CONTEXT)?;
        if !self.num_heads.is_multiple_of(self.num_kv_heads) {
            let expected = format!("a divisor of the {} attention heads", self.num_heads);
            let key = "number of key-value heads";
            return Err(invalid(file, key, self.num_kv_heads, expected));
        }
        if !self.head_dim.is_multiple_of(2) {
            let expected = "an even number, since RoPE rotates pairs".to_owned();
            return Err(invalid(file, "head size", self.head_dim, expected));
        }
        if !(self.rms_norm_eps.is_finite() && self.rms_norm_eps > 0.0) {
            let expected = "a positive number".to_owned();
            return Err(invalid(file, "norm epsilon", self.rms_norm_eps, expected));
        }
        if !(self.rope_theta.is_finite() && self.rope_theta > 0.0) {
            let expected = "a positive number".to_owned();
            return Err(invalid(file, "rope theta", self.rope_theta, expected));
        }
        self.check_token_ids(file)
    }

    fn check_token_ids(&self, file: &str) -> Result<(), ConfigError> {
        let special = self.eos_token_ids.iter().chain(&self.bos_token_id);
        for &id in special {
            if id as usize >= self.vocab_size {
                let expected = format!("an id below the vocabulary size {}", self.vocab_size);
                return Err(invalid(file, "a begin or end token", id, expected));
            }
        }
        Ok(())
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
