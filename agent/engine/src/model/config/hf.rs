//! `config.json` and `generation_config.json` of a Hugging Face folder. Both forms of RoPE settings
//! are read: `rope_parameters` (transformers 5) and `rope_theta` with `rope_scaling` (before).

use super::fields::Fields;
use super::{ConfigError, Family, ModelConfig, RopeScaling, SamplingDefaults, invalid, narrow};
use serde_json::Value;
use std::path::Path;

const DEFAULT_ROPE_THETA: f64 = 10_000.0;
const DEFAULT_NORM_EPS: f64 = 1e-6;

/// Reads the configuration of the model in `folder`.
///
/// # Errors
/// Names the file, the key, its value, and what is supported.
pub fn read_config(folder: &Path) -> Result<ModelConfig, ConfigError> {
    let fields = Fields::read(&folder.join("config.json"))?;
    build_config(&fields, generation_config(folder)?.as_ref())
}

/// The sampling defaults of the model in `folder`, if its `generation_config.json` sets them.
///
/// # Errors
/// Names the file, the key and its value.
pub fn read_sampling_defaults(folder: &Path) -> Result<SamplingDefaults, ConfigError> {
    let generation = generation_config(folder)?;
    generation.map_or_else(
        || Ok(SamplingDefaults::default()),
        |fields| sampling(&fields),
    )
}

fn generation_config(folder: &Path) -> Result<Option<Fields>, ConfigError> {
    let path = folder.join("generation_config.json");
    path.exists().then(|| Fields::read(&path)).transpose()
}

/// Below it a number is 0 in 32 bits.
const LEAST: f64 = f32::MIN_POSITIVE as f64;

fn sampling(fields: &Fields) -> Result<SamplingDefaults, ConfigError> {
    let number = |key: &str, is_fit: fn(f64) -> bool, expected: &str| match fields.number(key)? {
        Some(number) if !is_fit(number) => Err(fields.expect(key, &Value::from(number), expected)),
        number => Ok(number.map(narrow)),
    };
    let top_k = fields.size_opt("top_k")?;
    Ok(SamplingDefaults {
        temperature: number(
            "temperature",
            |n| (0.0..=f64::from(f32::MAX)).contains(&n),
            "0 or more, as far as 32 bits reach",
        )?,
        top_p: number("top_p", |n| (LEAST..=1.0).contains(&n), "above 0, up to 1")?,
        // Hugging Face's 0 means all tokens, like an absent key.
        top_k: top_k.and_then(|k| i32::try_from(k).ok().filter(|&k| k > 0)),
        min_p: number("min_p", |n| (0.0..=1.0).contains(&n), "0 to 1")?,
        repetition_penalty: number(
            "repetition_penalty",
            |n| (LEAST..=2.0).contains(&n),
            "above 0, up to 2",
        )?,
    })
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
    config.check(fields.file())?;
    Ok(config)
}

fn family(fields: &Fields) -> Result<Family, ConfigError> {
    let unsupported = |key: &str, value: &str, supported: String| ConfigError::Unsupported {
        file: fields.file().to_owned(),
        key: key.to_owned(),
        value: format!("{value:?}"),
        supported,
    };
    let model_type = fields.text("model_type")?;
    let model_type = model_type.ok_or_else(|| fields.missing("model_type"))?;
    let family = Family::from_name(model_type)
        .ok_or_else(|| unsupported("model_type", model_type, Family::supported()))?;
    let architectures = fields.get("architectures").and_then(Value::as_array);
    let architecture = architectures.and_then(|list| list.first()?.as_str());
    if let Some(architecture) = architecture
        && architecture != family.architecture()
    {
        let supported = Family::ALL.map(Family::architecture).join(", ");
        return Err(unsupported("architectures[0]", architecture, supported));
    }
    Ok(family)
}

/// Settings that change the network in an unsupported way.
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
    if fields.get("quantization_config").is_some() {
        let supported = "unquantised safetensors, or a quantised GGUF file";
        return Err(fields.unsupported("quantization_config", "present", supported));
    }
    Ok(())
}

fn head_dim_from(fields: &Fields, hidden: usize, heads: usize) -> Result<usize, ConfigError> {
    if heads == 0 || !hidden.is_multiple_of(heads) {
        let expected = format!("a divisor of hidden_size {hidden}, since head_dim is not given");
        return Err(invalid(
            fields.file(),
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
        "llama3" => llama3_scaling(&parameters)?,
        other => {
            return Err(parameters.unsupported("rope_type", other, "default, linear, llama3"));
        }
    };
    Ok((theta, scaling))
}

fn llama3_scaling(parameters: &Fields) -> Result<RopeScaling, ConfigError> {
    let low_freq_factor = parameters.positive("low_freq_factor")?;
    let high_freq_factor = parameters.positive("high_freq_factor")?;
    if high_freq_factor <= low_freq_factor {
        let expected = format!("more than low_freq_factor {low_freq_factor}");
        let high = Value::from(high_freq_factor);
        return Err(parameters.expect("high_freq_factor", &high, &expected));
    }
    Ok(RopeScaling::Llama3 {
        factor: parameters.positive("factor")?,
        low_freq_factor,
        high_freq_factor,
        original_context_len: parameters.positive("original_max_position_embeddings")?,
    })
}

#[cfg(test)]
mod fuzz;
