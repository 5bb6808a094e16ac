//! A model on disk: its location, its configuration, and its weights.

use super::config::{self, ConfigError, Family, Mixer, ModelConfig, SamplingDefaults};
use super::family;
use crate::weights::{DraftPlace, DraftRole, Gguf, Role, Safetensors, Weights, WeightsError};
use std::fs;
use std::path::{Path, PathBuf};

/// A path given by the user, resolved to one of the two kinds of model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelPath {
    /// A Hugging Face folder: it holds `config.json`.
    Folder(PathBuf),
    Gguf(PathBuf),
}

/// An opened model: only headers have been read.
#[derive(Debug)]
pub struct ModelFiles {
    pub config: ModelConfig,
    pub weights: Weights,
    pub sampling_defaults: SamplingDefaults,
}

/// Why no model was found, or the found one is refused.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(
        "cannot read the model path {path}: {source}; give a model folder or a .gguf file on this \
         machine: models are not downloaded"
    )]
    Path {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error(
        "{path} is not a model: expected a .gguf file, or a folder with config.json or one .gguf file"
    )]
    NoModel { path: PathBuf },
    #[error("{path} holds {count} .gguf files and no config.json; give the path of one of them")]
    SeveralGguf { path: PathBuf, count: usize },
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Weights(#[from] WeightsError),
}

/// Why a model does not draft by a layer of its own.
#[derive(Debug, thiserror::Error)]
pub enum DraftLayerError {
    #[error(
        "{family} models have no draft layer that is known; give NGRAM or STANDALONE, or leave it out"
    )]
    Family { family: Family },
    #[error(
        "{path} has no draft layer: tensor {name} is missing; take a checkpoint that has it, or give NGRAM or STANDALONE"
    )]
    Missing { path: PathBuf, name: String },
}

// === impl ModelPath ===

impl ModelPath {
    /// # Errors
    /// When there is no model at `path`, or more than one.
    pub fn resolve(path: &Path) -> Result<Self, OpenError> {
        let unreadable = |source| OpenError::Path {
            path: path.to_owned(),
            source,
        };
        let metadata = fs::metadata(path).map_err(unreadable)?;
        if !metadata.is_dir() {
            return if is_gguf(path) {
                Ok(Self::Gguf(path.to_owned()))
            } else {
                Err(OpenError::NoModel {
                    path: path.to_owned(),
                })
            };
        }
        if path.join("config.json").exists() {
            return Ok(Self::Folder(path.to_owned()));
        }
        let mut found = Vec::new();
        for entry in fs::read_dir(path).map_err(unreadable)? {
            let file = entry.map_err(unreadable)?.path();
            if is_gguf(&file) {
                found.push(file);
            }
        }
        match (found.pop(), found.len()) {
            (Some(file), 0) => Ok(Self::Gguf(file)),
            (None, _) => Err(OpenError::NoModel {
                path: path.to_owned(),
            }),
            (Some(_), others) => Err(OpenError::SeveralGguf {
                path: path.to_owned(),
                count: others + 1,
            }),
        }
    }
}

/// The files of a folder that determine how text becomes ids.
pub(crate) fn tokenizer_files(folder: &Path) -> Vec<PathBuf> {
    let names = [
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
    ];
    let paths = names.map(|name| folder.join(name));
    paths.into_iter().filter(|path| path.exists()).collect()
}

fn is_gguf(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"))
}

// === impl ModelFiles ===

impl ModelFiles {
    /// Maps the files of the model at `path` and reads their headers.
    ///
    /// # Errors
    /// Names the file and the key or tensor at fault.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        match ModelPath::resolve(path)? {
            ModelPath::Folder(folder) => {
                let (config, names) = config::hf::read_config(&folder)?;
                let weights = Safetensors::open(&folder).map_err(WeightsError::from)?;
                let fp8 = config.fp8;
                Ok(Self {
                    config,
                    weights: Weights::of_folder(weights, names, fp8),
                    sampling_defaults: config::hf::read_sampling_defaults(&folder)?,
                })
            }
            ModelPath::Gguf(file) => {
                let file = Gguf::open(&file).map_err(WeightsError::from)?;
                let (config, form) = config::gguf::read_config(&file)?;
                Ok(Self {
                    config,
                    weights: Weights::Gguf {
                        file,
                        names: form.names,
                        permuted_qk: form.permuted_qk,
                    },
                    sampling_defaults: SamplingDefaults::default(),
                })
            }
        }
    }

    /// With the draft layer of the checkpoint as part of the model: a layer of the kind of its last one with attention.
    ///
    /// # Errors
    /// When the family or the checkpoint has none.
    pub fn with_draft_layer(mut self) -> Result<Self, DraftLayerError> {
        let family = self.config.family;
        let keeps_pages = |mixer: &Mixer| match mixer {
            Mixer::Attention(_) | Mixer::Mla(_) => true,
            Mixer::GatedDelta(_) => false,
        };
        let layers = self.config.layers.iter().rev().copied();
        let last = layers.clone().find(|layer| keeps_pages(&layer.mixer));
        let (Some(names), Some(layer)) = (family::draft_names(family), last) else {
            return Err(DraftLayerError::Family { family });
        };
        self.weights = self.weights.with_draft(DraftPlace {
            layer: layers.len(),
            names,
        });
        let role = Role::Draft(DraftRole::Projection);
        if !self.weights.contains(role) {
            return Err(DraftLayerError::Missing {
                path: self.weights.path().to_owned(),
                name: self.weights.name(role).unwrap_or_default(),
            });
        }
        self.config.draft_layer = Some(layer);
        Ok(self)
    }

    /// Every file that determines the meaning of the model's KV: weights, and for safetensors the
    /// tokenizer and the chat template. In a fixed order.
    pub fn files(&self) -> Vec<PathBuf> {
        match &self.weights {
            Weights::Gguf { file, .. } => vec![file.path().to_owned()],
            Weights::Hf { files, .. } => {
                let shards = files.headers().map(|(path, _)| path.to_owned());
                let beside = tokenizer_files(files.path());
                shards.chain(beside).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests;
