//! `config.json` and `generation_config.json` of a Hugging Face folder. The keys of a
//! family are its own business (`model/family/*.rs`).

mod quantization;

use super::fields::Fields;
use super::{ConfigError, ModelConfig, SamplingDefaults, narrow};
use crate::model::family::{self, FamilyDef};
use crate::weights::HfNames;
use serde_json::Value;
use std::path::Path;

/// Keys that any family's file may have and that change no number that the model computes: notes
/// of the library and of tools, numbers of the training, and how text is chosen.
const NEUTRAL: &[&str] = &[
    "_attn_implementation_autoset",
    "_commit_hash",
    "_model_name_or_path",
    "_name_or_path",
    "attention_dropout",
    "auto_map",
    "chunk_size_feed_forward",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "encoder_no_repeat_ngram_size",
    "id2label",
    "initializer_range",
    "label2id",
    "length_penalty",
    "max_length",
    "max_new_tokens",
    "min_length",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "pad_token_id",
    "repetition_penalty",
    "return_dict",
    "temperature",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "unk_token_id",
    "unsloth_fixed",
    "unsloth_version",
    "use_cache",
];

/// Reads the configuration of the model in `folder`, and how its family names tensors.
///
/// # Errors
/// Names the file, the key, its value, and what is supported.
pub fn read_config(folder: &Path) -> Result<(ModelConfig, HfNames), ConfigError> {
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
    let number = |key: &'static str, is_fit: fn(f64) -> bool, expected: &str| match fields
        .number(key)?
    {
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
) -> Result<(ModelConfig, HfNames), ConfigError> {
    let def = find_family(fields)?;
    let family = def.family();
    let fp8 = quantization::read(fields, def)?;
    let text = text_config(fields, def)?;
    let decoder = text.as_ref().unwrap_or(fields);
    let mut config = ModelConfig {
        fp8,
        ..(def.config)(&decoder.filled((def.absent)()))?
    };
    if let Some(generation) = generation {
        for id in generation.ids("eos_token_id")? {
            if !config.eos_token_ids.contains(&id) {
                config.eos_token_ids.push(id);
            }
        }
    }
    config.check(fields.file())?;
    let neutral = [NEUTRAL, def.neutral].concat();
    decoder.refuse_unknown(family, &neutral)?;
    if let Some(towers) = def.towers.filter(|_| text.is_some()) {
        fields.refuse_unknown(family, &[NEUTRAL, towers].concat())?;
    }
    Ok((config, def.hf_names))
}

/// The decoder's keys in a file that describes other parts of the model, too.
fn text_config(fields: &Fields, def: &FamilyDef) -> Result<Option<Fields>, ConfigError> {
    if def.towers.is_none() {
        return Ok(None);
    }
    let beside = ["tie_word_embeddings", "bos_token_id", "eos_token_id"];
    let text = fields.nested("text_config", &beside)?;
    if let Some(text) = &text
        && let Some(model_type) = text.text("model_type")?
        && !def.model_types.contains(&model_type)
    {
        let supported = def.model_types.join(", ");
        return Err(text.unsupported("model_type", &format!("{model_type:?}"), &supported));
    }
    Ok(text)
}

fn find_family(fields: &Fields) -> Result<&'static FamilyDef, ConfigError> {
    let model_type = fields.text("model_type")?;
    let model_type = model_type.ok_or_else(|| fields.missing("model_type"))?;
    let def = family::of_model_type(model_type).ok_or_else(|| {
        let supported = family::model_types().join(", ");
        fields.unsupported("model_type", &format!("{model_type:?}"), &supported)
    })?;
    let architectures = fields.get("architectures").and_then(Value::as_array);
    let architecture = architectures.and_then(|list| list.first()?.as_str());
    let known = def.architectures;
    match architecture {
        Some(name) if !known.contains(&name) => {
            let name = format!("{name:?}");
            Err(fields.unsupported("architectures[0]", &name, &known.join(", ")))
        }
        Some(_) | None => Ok(def),
    }
}

#[cfg(test)]
mod fuzz;
