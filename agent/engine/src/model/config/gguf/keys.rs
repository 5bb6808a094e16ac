//! The keys of an architecture in a GGUF file's metadata.

use crate::model::config::{
    Attention, ConfigError, DenseFfn, Family, Ffn, LayerConfig, Mixer, ModelConfig, MoeFfn, Rope,
    RopeScaling, check, invalid, narrow,
};
use crate::model::family::GgufFamily;
use crate::weights::gguf::{Gguf, MetadataError, Value};
use std::cell::RefCell;
use std::collections::BTreeSet;

const DEFAULT_ROPE_THETA: f64 = 10_000.0;
/// Keys of an architecture that change no number that the model computes.
const NEUTRAL: &[&str] = &[
    "rope.scaling.finetuned",
    "rope.scaling.original_context_length",
    "vocab_size",
];

/// The metadata with the architecture's prefix. What was read is remembered, so that a key which
/// no reader knows can be refused.
pub(crate) struct Keys<'a> {
    gguf: &'a Gguf,
    file: String,
    family: Family,
    architecture: &'static str,
    towers: &'static [&'static str],
    known: RefCell<BTreeSet<&'static str>>,
}

fn vocab_size(keys: &Keys<'_>) -> Result<usize, ConfigError> {
    let table = keys.gguf.tensor("token_embd.weight");
    let table = table.ok_or_else(|| keys.missing_tensor("token_embd.weight"))?;
    Ok(table.rows)
}

fn rope_scaling(keys: &Keys<'_>) -> Result<RopeScaling, ConfigError> {
    let kind = keys.text("rope.scaling.type")?;
    match kind.unwrap_or("none") {
        "none" => Ok(RopeScaling::None),
        "linear" => {
            let factor = keys.require_number("rope.scaling.factor")?;
            if factor.is_finite() && factor > 0.0 {
                return Ok(RopeScaling::Linear { factor });
            }
            let key = keys.name("rope.scaling.factor");
            let expected = "a positive number".to_owned();
            Err(invalid(&keys.file, &key, factor, expected))
        }
        other => Err(ConfigError::Unsupported {
            file: keys.file.clone(),
            key: keys.name("rope.scaling.type"),
            value: format!("{other:?}"),
            supported: "none, linear, and llama3's factors as the tensor rope_freqs.weight"
                .to_owned(),
        }),
    }
}

/// What ends a turn of Gemma's, which its files name by its text alone. llama.cpp looks for it, too.
const END_OF_TURN: &str = "<end_of_turn>";

fn eos_token_ids(keys: &Keys<'_>) -> Result<Vec<u32>, ConfigError> {
    let mut ids = Vec::new();
    for key in [
        "tokenizer.ggml.eos_token_id",
        "tokenizer.ggml.eot_token_id",
        "tokenizer.ggml.eom_token_id",
    ] {
        if let Some(id) = keys.token_id(key)?
            && !ids.contains(&id)
        {
            ids.push(id);
        }
    }
    let tokens = keys.read(keys.gguf.metadata().texts("tokenizer.ggml.tokens"))?;
    let tokens = tokens.unwrap_or_default().iter();
    let end_of_turn = (0..).zip(tokens).find(|(_, token)| *token == END_OF_TURN);
    ids.extend(end_of_turn.map(|(id, _)| id).filter(|id| !ids.contains(id)));
    Ok(ids)
}

// === impl Keys ===

impl<'a> Keys<'a> {
    pub(super) fn new(gguf: &'a Gguf, file: String, family: Family, form: &GgufFamily) -> Self {
        Self {
            gguf,
            file,
            family,
            architecture: form.architecture,
            towers: form.towers,
            known: RefCell::default(),
        }
    }

    /// A decoder of dense layers that are all alike; `adapt` makes their attention the family's.
    pub(crate) fn dense_decoder(
        &self,
        adapt: fn(Attention) -> Attention,
    ) -> Result<ModelConfig, ConfigError> {
        let width = self.size("feed_forward_length")?;
        self.decoder(adapt, Ffn::Dense(DenseFfn::silu(width)))
    }

    /// As [`Self::dense_decoder`], with experts in all layers. llama.cpp divides the weights of a
    /// token's experts by their sum in these files, which do not say whether it should.
    pub(crate) fn moe_decoder(
        &self,
        adapt: fn(Attention) -> Attention,
    ) -> Result<ModelConfig, ConfigError> {
        // Of dense layers, which there are none of.
        self.size_opt("feed_forward_length")?;
        let experts = MoeFfn {
            normalise: true,
            ..MoeFfn::softmax(
                self.size("expert_count")?,
                self.size("expert_used_count")?,
                self.size("expert_feed_forward_length")?,
            )
        };
        self.decoder(adapt, Ffn::Moe(experts))
    }

    fn decoder(
        &self,
        adapt: fn(Attention) -> Attention,
        ffn: Ffn,
    ) -> Result<ModelConfig, ConfigError> {
        let attention = adapt(self.attention()?);
        let layer = LayerConfig {
            mixer: Mixer::Attention(attention),
            ffn,
        };
        let num_layers = check::num_layers(&self.file, self.size("block_count")?)?;
        Ok(ModelConfig {
            family: self.family,
            hidden_size: self.size("embedding_length")?,
            vocab_size: vocab_size(self)?,
            context_len: self.size("context_length")?,
            rms_norm_eps: narrow(self.require_number("attention.layer_norm_rms_epsilon")?),
            norm_plus_one: false,
            embed_scale: None,
            final_softcap: None,
            ropes: vec![self.rope(attention.head_dim)?],
            layers: vec![layer; num_layers],
            tie_word_embeddings: self.gguf.tensor("output.weight").is_none(),
            fp8: None,
            draft_layer: None,
            bos_token_id: self.token_id("tokenizer.ggml.bos_token_id")?,
            eos_token_ids: eos_token_ids(self)?,
        })
    }

    /// Attention over all earlier keys, without norms and biases.
    pub(crate) fn attention(&self) -> Result<Attention, ConfigError> {
        let num_heads = self.size("attention.head_count")?;
        let hidden_size = self.size("embedding_length")?;
        let head_dim = match self.size_opt("attention.key_length")? {
            Some(head_dim) => head_dim,
            None if num_heads > 0 && hidden_size.is_multiple_of(num_heads) => {
                hidden_size / num_heads
            }
            None => {
                let expected = format!(
                    "a divisor of the embedding length {hidden_size}, since attention.key_length \
                     is not given"
                );
                let key = self.name("attention.head_count");
                return Err(invalid(&self.file, &key, num_heads, expected));
            }
        };
        self.expect_size("attention.value_length", head_dim, "the key length")?;
        let num_kv_heads = self.size_opt("attention.head_count_kv")?;
        Ok(Attention::plain(num_heads, num_kv_heads, head_dim))
    }

    fn rope(&self, head_dim: usize) -> Result<Rope, ConfigError> {
        let whole = "the key length, since partial rotation is not supported:";
        self.expect_size("rope.dimension_count", head_dim, whole)?;
        Ok(Rope {
            rotary_dim: head_dim,
            theta: self.number("rope.freq_base")?.unwrap_or(DEFAULT_ROPE_THETA),
            scaling: rope_scaling(self)?,
        })
    }

    /// Refuses another size than the one that is computed, if it is written.
    fn expect_size(&self, key: &'static str, size: usize, what: &str) -> Result<(), ConfigError> {
        match self.size_opt(key)? {
            Some(other) if other != size => {
                let expected = format!("{what} {size}");
                Err(invalid(&self.file, &self.name(key), other, expected))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Refuses keys of the architecture that were not read, but for what is off or empty.
    pub(super) fn refuse_unknown(&self) -> Result<(), ConfigError> {
        let prefix = format!("{}.", self.architecture);
        let known = self.known.borrow();
        let is_of_tower = |key: &str| self.towers.iter().any(|tower| key.starts_with(tower));
        let is_known =
            |key: &str| known.contains(key) || NEUTRAL.contains(&key) || is_of_tower(key);
        for (key, value) in self.gguf.metadata().iter() {
            let own = key.strip_prefix(&prefix);
            if own.is_some_and(|own| !is_known(own)) && says_something(value) {
                return Err(ConfigError::Unknown {
                    file: self.file.clone(),
                    key: key.to_owned(),
                    value: value.describe(),
                    family: self.family,
                });
            }
        }
        Ok(())
    }

    fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    fn read<T>(&self, result: Result<T, MetadataError>) -> Result<T, ConfigError> {
        result.map_err(|error| from_metadata(&self.file, error))
    }

    fn missing(&self, key: &str) -> ConfigError {
        ConfigError::Missing {
            file: self.file.clone(),
            key: self.name(key),
        }
    }

    fn missing_tensor(&self, name: &str) -> ConfigError {
        ConfigError::Missing {
            file: self.file.clone(),
            key: format!("tensor {name}"),
        }
    }

    pub(crate) fn size_opt(&self, key: &'static str) -> Result<Option<usize>, ConfigError> {
        self.known.borrow_mut().insert(key);
        self.read(self.gguf.metadata().size(&self.name(key)))
    }

    pub(crate) fn size(&self, key: &'static str) -> Result<usize, ConfigError> {
        self.size_opt(key)?.ok_or_else(|| self.missing(key))
    }

    fn text(&self, key: &'static str) -> Result<Option<&str>, ConfigError> {
        self.known.borrow_mut().insert(key);
        self.read(self.gguf.metadata().text(&self.name(key)))
    }

    pub(crate) fn number(&self, key: &'static str) -> Result<Option<f64>, ConfigError> {
        self.known.borrow_mut().insert(key);
        self.read(self.gguf.metadata().number(&self.name(key)))
    }

    fn require_number(&self, key: &'static str) -> Result<f64, ConfigError> {
        self.number(key)?.ok_or_else(|| self.missing(key))
    }

    fn token_id(&self, key: &str) -> Result<Option<u32>, ConfigError> {
        let id = self.read(self.gguf.metadata().size(key))?;
        id.map(|id| {
            u32::try_from(id).map_err(|_| invalid(&self.file, key, id, "a token id".to_owned()))
        })
        .transpose()
    }
}

pub(super) fn from_metadata(file: &str, error: MetadataError) -> ConfigError {
    invalid(file, &error.key, error.found, error.expected.to_owned())
}

/// Whether a value differs from what "there is no such thing" looks like.
fn says_something(value: &Value) -> bool {
    match value {
        Value::Unsigned(number) => *number != 0,
        Value::Signed(number) => *number != 0,
        Value::Float(number) => *number != 0.0,
        Value::Bool(flag) => *flag,
        Value::Text(text) => !text.is_empty(),
        Value::Array(_) => true,
    }
}
