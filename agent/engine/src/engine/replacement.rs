//! Whether a checkpoint can take the place of the one that an engine runs: the same network, in the same memory.

use super::config::EngineConfig;
use super::{EngineHandle, draft};
use crate::model::{ModelConfig, ModelFiles};
use crate::text;
use crate::weights::TensorShape;
use crate::weights::digest::DigestCache;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What checkpoints have in common of which one can take the other's place.
#[derive(Debug)]
pub(super) struct CheckpointForm {
    config: ModelConfig,
    tensors: BTreeMap<String, TensorShape>,
}

/// Why a checkpoint cannot take the place of the one that runs.
#[derive(Debug, thiserror::Error)]
pub enum ReplacementError {
    #[error("{0}")]
    Unreadable(String),
    #[error(
        "{path} is of another network: its configuration has {key} {new}, that which runs has {running}; start workers \
         with it instead"
    )]
    Config {
        path: PathBuf,
        key: String,
        new: String,
        running: String,
    },
    #[error(
        "{path} is stored in another way: its tensor {name} is {new}, that which runs has {running}; start workers with it \
         instead"
    )]
    Tensor {
        path: PathBuf,
        name: String,
        new: String,
        running: String,
    },
}

// === impl CheckpointForm ===

impl CheckpointForm {
    pub(super) fn of(files: &ModelFiles) -> Self {
        Self {
            config: files.config.clone(),
            tensors: files.weights.shapes(),
        }
    }

    /// # Errors
    /// Names the first key or tensor that differs.
    fn check(&self, new: &Self, path: PathBuf) -> Result<(), ReplacementError> {
        if let Some((key, new, running)) = first_difference(&new.config, &self.config) {
            return Err(ReplacementError::Config {
                path,
                key,
                new,
                running,
            });
        }
        let shape = |shape: Option<&TensorShape>| {
            shape.map_or_else(|| "none".to_owned(), TensorShape::to_string)
        };
        let names = self.tensors.keys().chain(new.tensors.keys());
        let differs = |name: &&String| self.tensors.get(*name) != new.tensors.get(*name);
        match names.into_iter().find(differs) {
            None => Ok(()),
            Some(name) => Err(ReplacementError::Tensor {
                path,
                name: name.clone(),
                new: shape(new.tensors.get(name)),
                running: shape(self.tensors.get(name)),
            }),
        }
    }
}

/// The path of the first value in which two configurations differ, and both values, as JSON.
fn first_difference(new: &ModelConfig, running: &ModelConfig) -> Option<(String, String, String)> {
    if new == running {
        return None;
    }
    let json = |config| serde_json::to_value(config).expect("numbers and strings have a JSON form");
    let mut path = String::new();
    let (new, running) = differing(json(new), json(running), &mut path);
    Some((path, new.to_string(), running.to_string()))
}

/// Follows the first difference down, and notes its path.
fn differing(new: Value, running: Value, path: &mut String) -> (Value, Value) {
    let children = |value: &Value| -> Option<BTreeMap<String, Value>> {
        match value {
            Value::Object(fields) => {
                let fields = fields.iter();
                Some(fields.map(|(k, v)| (k.clone(), v.clone())).collect())
            }
            Value::Array(items) => {
                let items = items.iter().enumerate();
                Some(items.map(|(i, v)| (i.to_string(), v.clone())).collect())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        }
    };
    let (Some(of_new), Some(of_running)) = (children(&new), children(&running)) else {
        return (new, running);
    };
    let mut keys = of_new.keys().chain(of_running.keys());
    let Some(key) = keys.find(|key| of_new.get(*key) != of_running.get(*key)) else {
        return (new, running);
    };
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(key);
    let child = |children: &BTreeMap<String, Value>| children.get(key).cloned().unwrap_or_default();
    differing(child(&of_new), child(&of_running), path)
}

// === impl EngineHandle ===

impl EngineHandle {
    /// Reads all of the checkpoint that `config` names and starts nothing: headers, tokenizer and chat template, and the
    /// weights for their digest, so that a start with it finds them in memory. Blocks meanwhile.
    ///
    /// # Errors
    /// What would keep it from taking the place of the one that runs.
    pub fn check_replacement(&self, config: &EngineConfig) -> Result<(), ReplacementError> {
        fn unreadable(why: impl std::fmt::Display) -> ReplacementError {
            ReplacementError::Unreadable(why.to_string())
        }
        let files = ModelFiles::open(&config.model_path).map_err(unreadable)?;
        let files = draft::with_layer(files, config).map_err(unreadable)?;
        let path = files.weights.path().to_owned();
        let new = CheckpointForm::of(&files);
        self.shared.form.check(&new, path)?;
        text::load_from(&config.text_sources()).map_err(unreadable)?;
        let cache = DigestCache::new(config.cache_dir.clone());
        for file in files.files() {
            cache.digest(&file).map_err(unreadable)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
