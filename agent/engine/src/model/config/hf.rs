//! `config.json` and `generation_config.json` of a Hugging Face folder. Both forms of RoPE settings
//! are read: `rope_parameters` (transformers 5) and `rope_theta` with `rope_scaling` (before).

use std::path::Path;

use serde_json::{Map, Value};

use super::{ConfigError, Family, ModelConfig, RopeScaling, invalid, narrow};

const DEFAULT_ROPE_THETA: f64 = 10_000.0;
const DEFAULT_NORM_EPS: f64 = 1e-6;

/// Reads the configuration of the model in `folder`.
///
/// # Errors
/// Names the file, the key, its value, and what is supported.
pub fn read_config(folder: &Path) -> Result<ModelConfig, ConfigError> {
    let fields = Fields::read(&folder.join("config.json"))?;
    let generation = folder.join("generation_config.json");
    let generation = if generation.exists() {
        Some(Fields::read(&generation)?)
    } else {
        None
    };
    build_config(&fields, generation.as_ref())
}

/// The keys of one JSON object, with their place for messages.
pub(super) struct Fields {
    file: String,
    /// `""` at the root, `"rope_scaling."` inside that object.
    prefix: String,
    map: Map<String, Value>,
}

pub(super) fn build_config(
    fields: &Fields,
    generation: Option<&Fields>,
) -> Result<ModelConfig, ConfigError> {
    let family = family(fields)?;
    refuse_unsupported(fields)?;
    let hidden_size = fields.size("hidden_size")?;
    let num_heads = fields.size("num_attention_heads")?;
    let head_dim = match fields.size_opt("head_dim")? {
        Some(head_dim) => head_dim,
        None => head_dim_from(fields, hidden_size, num_heads)?,
    };
    let (rope_theta, rope_scaling) = rope(fields)?;
    let mut eos_token_ids = fields.ids("eos_token_id")?;
    if let Some(generation) = generation {
        for id in generation.ids("eos_token_id")? {
            if !eos_token_ids.contains(&id) {
                eos_token_ids.push(id);
            }
        }
    }
    let config = ModelConfig {
        family,
        hidden_size,
        intermediate_size: fields.size("intermediate_size")?,
        num_layers: fields.size("num_hidden_layers")?,
        num_heads,
        num_kv_heads: fields.size_opt("num_key_value_heads")?.unwrap_or(num_heads),
        head_dim,
        vocab_size: fields.size("vocab_size")?,
        context_len: fields.size("max_position_embeddings")?,
        rms_norm_eps: narrow(fields.number("rms_norm_eps")?.unwrap_or(DEFAULT_NORM_EPS)),
        rope_theta,
        rope_scaling,
        tie_word_embeddings: fields.flag("tie_word_embeddings")?.unwrap_or(false),
        bos_token_id: fields.ids("bos_token_id")?.first().copied(),
        eos_token_ids,
    };
    config.check(&fields.file)?;
    Ok(config)
}

fn family(fields: &Fields) -> Result<Family, ConfigError> {
    let unsupported = |key: &str, value: &str, supported: String| ConfigError::Unsupported {
        file: fields.file.clone(),
        key: key.to_owned(),
        value: format!("{value:?}"),
        supported,
    };
    let model_type = fields.text("model_type")?;
    let model_type = model_type.ok_or_else(|| fields.missing("model_type"))?;
    let family = Family::from_name(model_type)
        .ok_or_else(|| unsupported("model_type", model_type, Family::supported()))?;
    let architectures = fields.map.get("architectures").and_then(Value::as_array);
    let architecture = architectures.and_then(|list| list.first()?.as_str());
    if let Some(architecture) = architecture
        && architecture != family.architecture()
    {
        let supported = Family::ALL.map(Family::architecture).join(", ");
        return Err(unsupported("architectures[0]", architecture, supported));
    }
    Ok(family)
}

/// Settings that change the network in a way this engine does not carry out.
fn refuse_unsupported(fields: &Fields) -> Result<(), ConfigError> {
    for key in ["attention_bias", "mlp_bias", "use_sliding_window"] {
        if fields.flag(key)?.unwrap_or(false) {
            return Err(fields.unsupported(key, "true", "false"));
        }
    }
    if let Some(activation) = fields.text("hidden_act")?
        && activation != "silu"
    {
        return Err(fields.unsupported("hidden_act", activation, "silu"));
    }
    if fields.map.contains_key("quantization_config") {
        let supported = "unquantised safetensors, or a quantised GGUF file";
        return Err(fields.unsupported("quantization_config", "present", supported));
    }
    Ok(())
}

fn head_dim_from(fields: &Fields, hidden: usize, heads: usize) -> Result<usize, ConfigError> {
    if heads == 0 || !hidden.is_multiple_of(heads) {
        let expected = format!("a divisor of hidden_size {hidden}, since head_dim is not given");
        return Err(invalid(
            &fields.file,
            "num_attention_heads",
            heads,
            expected,
        ));
    }
    Ok(hidden / heads)
}

fn rope(fields: &Fields) -> Result<(f64, RopeScaling), ConfigError> {
    let parameters = match fields.object("rope_parameters")? {
        Some(parameters) => Some(parameters),
        None => fields.object("rope_scaling")?,
    };
    let Some(parameters) = parameters else {
        let theta = fields.number("rope_theta")?;
        return Ok((theta.unwrap_or(DEFAULT_ROPE_THETA), RopeScaling::None));
    };
    let theta = match parameters.number("rope_theta")? {
        Some(theta) => theta,
        None => fields.number("rope_theta")?.unwrap_or(DEFAULT_ROPE_THETA),
    };
    let kind = match parameters.text("rope_type")? {
        Some(kind) => kind,
        None => parameters.text("type")?.unwrap_or("default"),
    };
    let scaling = match kind {
        "default" => RopeScaling::None,
        "linear" => RopeScaling::Linear {
            factor: parameters.positive("factor")?,
        },
        "llama3" => RopeScaling::Llama3 {
            factor: parameters.positive("factor")?,
            low_freq_factor: parameters.positive("low_freq_factor")?,
            high_freq_factor: parameters.positive("high_freq_factor")?,
            original_context_len: parameters.positive("original_max_position_embeddings")?,
        },
        other => {
            return Err(parameters.unsupported("rope_type", other, "default, linear, llama3"));
        }
    };
    Ok((theta, scaling))
}

// === impl Fields ===

impl Fields {
    fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read(path).map_err(|source| ConfigError::Read {
            path: path.to_owned(),
            source,
        })?;
        let map = serde_json::from_slice(&text).map_err(|source| ConfigError::Json {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self::new(path.display().to_string(), map))
    }

    pub(super) fn new(file: String, map: Map<String, Value>) -> Self {
        Self {
            file,
            prefix: String::new(),
            map,
        }
    }

    /// The key's value; JSON null counts as absent.
    fn get(&self, key: &str) -> Option<&Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    fn expect(&self, key: &str, value: &Value, expected: &str) -> ConfigError {
        let key = format!("{}{key}", self.prefix);
        invalid(&self.file, &key, value, expected.to_owned())
    }

    fn missing(&self, key: &str) -> ConfigError {
        ConfigError::Missing {
            file: self.file.clone(),
            key: format!("{}{key}", self.prefix),
        }
    }

    fn unsupported(&self, key: &str, value: &str, supported: &str) -> ConfigError {
        ConfigError::Unsupported {
            file: self.file.clone(),
            key: format!("{}{key}", self.prefix),
            value: value.to_owned(),
            supported: supported.to_owned(),
        }
    }

    fn size_opt(&self, key: &str) -> Result<Option<usize>, ConfigError> {
        self.get(key)
            .map(|value| {
                let size = value.as_u64().and_then(|size| usize::try_from(size).ok());
                size.ok_or_else(|| self.expect(key, value, "a whole number"))
            })
            .transpose()
    }

    fn size(&self, key: &str) -> Result<usize, ConfigError> {
        self.size_opt(key)?.ok_or_else(|| self.missing(key))
    }

    fn number(&self, key: &str) -> Result<Option<f64>, ConfigError> {
        self.get(key)
            .map(|value| {
                let number = value.as_f64().filter(|number| number.is_finite());
                number.ok_or_else(|| self.expect(key, value, "a number"))
            })
            .transpose()
    }

    fn positive(&self, key: &str) -> Result<f64, ConfigError> {
        let number = self.number(key)?.ok_or_else(|| self.missing(key))?;
        if number > 0.0 {
            Ok(number)
        } else {
            Err(self.expect(key, &Value::from(number), "a positive number"))
        }
    }

    fn flag(&self, key: &str) -> Result<Option<bool>, ConfigError> {
        self.get(key)
            .map(|value| {
                value
                    .as_bool()
                    .ok_or_else(|| self.expect(key, value, "true or false"))
            })
            .transpose()
    }

    fn text(&self, key: &str) -> Result<Option<&str>, ConfigError> {
        self.get(key)
            .map(|value| {
                value
                    .as_str()
                    .ok_or_else(|| self.expect(key, value, "a string"))
            })
            .transpose()
    }

    fn object(&self, key: &str) -> Result<Option<Self>, ConfigError> {
        self.get(key)
            .map(|value| match value.as_object() {
                Some(map) => Ok(Self {
                    file: self.file.clone(),
                    prefix: format!("{}{key}.", self.prefix),
                    map: map.clone(),
                }),
                None => Err(self.expect(key, value, "an object")),
            })
            .transpose()
    }

    /// A token id or a list of them; none when absent.
    fn ids(&self, key: &str) -> Result<Vec<u32>, ConfigError> {
        let Some(value) = self.get(key) else {
            return Ok(Vec::new());
        };
        let list = match value.as_array() {
            Some(list) => list.as_slice(),
            None => std::slice::from_ref(value),
        };
        let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
        let ids: Option<Vec<u32>> = list.iter().map(id).collect();
        ids.ok_or_else(|| self.expect(key, value, "a token id or a list of them"))
    }
}
