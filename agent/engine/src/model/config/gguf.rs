//! The configuration in a GGUF file's metadata: `general.architecture`, then keys that begin with
//! its name. The sizes the metadata leaves out are taken from the tensors' shapes.

use super::{ConfigError, Family, ModelConfig, RopeScaling, invalid, narrow};
use crate::weights::gguf::{Gguf, MetadataError};

const DEFAULT_ROPE_THETA: f64 = 10_000.0;

/// Reads the configuration of the model in `gguf`.
///
/// # Errors
/// Names the file, the key, its value, and what is supported.
pub fn read_config(gguf: &Gguf) -> Result<ModelConfig, ConfigError> {
    let keys = Keys::new(gguf)?;
    let num_heads = keys.size("attention.head_count")?;
    let hidden_size = keys.size("embedding_length")?;
    let head_dim = match keys.size_opt("attention.key_length")? {
        Some(head_dim) => head_dim,
        None if num_heads > 0 && hidden_size.is_multiple_of(num_heads) => hidden_size / num_heads,
        None => {
            let expected = format!(
                "a divisor of the embedding length {hidden_size}, since attention.key_length is \
                 not given"
            );
            let key = keys.name("attention.head_count");
            return Err(invalid(&keys.file, &key, num_heads, expected));
        }
    };
    if let Some(value_length) = keys.size_opt("attention.value_length")?
        && value_length != head_dim
    {
        let expected = format!("the key length {head_dim}");
        let key = keys.name("attention.value_length");
        return Err(invalid(&keys.file, &key, value_length, expected));
    }
    if let Some(rotary_dim) = keys.size_opt("rope.dimension_count")?
        && rotary_dim != head_dim
    {
        let expected = format!("the key length {head_dim}: partial rotation is not supported");
        let key = keys.name("rope.dimension_count");
        return Err(invalid(&keys.file, &key, rotary_dim, expected));
    }
    let config = ModelConfig {
        family: keys.family,
        hidden_size,
        intermediate_size: keys.size("feed_forward_length")?,
        num_layers: keys.size("block_count")?,
        num_heads,
        num_kv_heads: keys
            .size_opt("attention.head_count_kv")?
            .unwrap_or(num_heads),
        head_dim,
        vocab_size: vocab_size(&keys)?,
        context_len: keys.size("context_length")?,
        rms_norm_eps: narrow(keys.require_number("attention.layer_norm_rms_epsilon")?),
        rope_theta: keys.number("rope.freq_base")?.unwrap_or(DEFAULT_ROPE_THETA),
        rope_scaling: rope_scaling(&keys)?,
        tie_word_embeddings: gguf.tensor("output.weight").is_none(),
        bos_token_id: keys.token_id("tokenizer.ggml.bos_token_id")?,
        eos_token_ids: eos_token_ids(&keys)?,
    };
    config.check(&keys.file)?;
    Ok(config)
}

/// The metadata with the architecture's prefix.
struct Keys<'a> {
    gguf: &'a Gguf,
    file: String,
    family: Family,
}

fn vocab_size(keys: &Keys<'_>) -> Result<usize, ConfigError> {
    let table = keys.gguf.tensor("token_embd.weight");
    let table = table.ok_or_else(|| keys.missing_tensor("token_embd.weight"))?;
    Ok(table.rows)
}

fn rope_scaling(keys: &Keys<'_>) -> Result<RopeScaling, ConfigError> {
    let key = keys.name("rope.scaling.type");
    let kind = keys.read(keys.gguf.metadata().text(&key))?;
    match kind.unwrap_or("none") {
        "none" => Ok(RopeScaling::None),
        "linear" => {
            let factor = keys.require_number("rope.scaling.factor")?;
            if factor > 0.0 && factor.is_finite() {
                Ok(RopeScaling::Linear { factor })
            } else {
                let key = keys.name("rope.scaling.factor");
                Err(invalid(
                    &keys.file,
                    &key,
                    factor,
                    "a positive number".to_owned(),
                ))
            }
        }
        other => Err(ConfigError::Unsupported {
            file: keys.file.clone(),
            key,
            value: format!("{other:?}"),
            supported: "none, linear, and llama3's factors as the tensor rope_freqs.weight"
                .to_owned(),
        }),
    }
}

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
    Ok(ids)
}

// === impl Keys ===

impl<'a> Keys<'a> {
    fn new(gguf: &'a Gguf) -> Result<Self, ConfigError> {
        let file = gguf.path().display().to_string();
        let key = "general.architecture";
        let architecture = gguf
            .metadata()
            .text(key)
            .map_err(|error| from_metadata(&file, error))?;
        let Some(architecture) = architecture else {
            return Err(ConfigError::Missing {
                file,
                key: key.to_owned(),
            });
        };
        let family = Family::from_name(architecture).ok_or_else(|| ConfigError::Unsupported {
            file: file.clone(),
            key: key.to_owned(),
            value: format!("{architecture:?}"),
            supported: Family::supported(),
        })?;
        Ok(Self { gguf, file, family })
    }

    fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.family.name())
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

    fn size_opt(&self, key: &str) -> Result<Option<usize>, ConfigError> {
        self.read(self.gguf.metadata().size(&self.name(key)))
    }

    fn size(&self, key: &str) -> Result<usize, ConfigError> {
        self.size_opt(key)?.ok_or_else(|| self.missing(key))
    }

    fn number(&self, key: &str) -> Result<Option<f64>, ConfigError> {
        self.read(self.gguf.metadata().number(&self.name(key)))
    }

    fn require_number(&self, key: &str) -> Result<f64, ConfigError> {
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

fn from_metadata(file: &str, error: MetadataError) -> ConfigError {
    invalid(file, &error.key, error.found, error.expected.to_owned())
}
