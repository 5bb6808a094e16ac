//! Loads what drafts beside a model, another one or a layer of its own, and checks that it can.

use super::StartError;
use super::config::{DisaggregationMode, EngineConfig, SpeculativeAlgorithm};
use crate::kvcache::group::{KvGroups, KvPoolShape};
use crate::model::{self, Model, ModelConfig, ModelFiles, StepLimits};
use crate::ranks::local::LocalRank;
use crate::speculate::layer::DraftLayer;
use crate::speculate::model::DraftModel;
use crate::step::Drafting;
use crate::text::{self, Tokenizer};
use pd_compute::{Backend, DType, Reach};
use std::path::{Path, PathBuf};

const FLAG: &str = "--speculative-draft-model-path";
/// Tokens that the draft model computes at a time where it has not followed: a chunk of a prompt.
const CATCH_UP_TOKENS: usize = 512;

/// A draft model on a device, without its KV.
pub(super) struct LoadedDraft<B: Backend> {
    path: PathBuf,
    pub(super) model: Box<dyn Model<B>>,
    tokenizer: Tokenizer,
}

/// The draft model of an engine that takes drafts of one.
///
/// # Errors
/// When it cannot be read, or cannot draft for `target`.
pub(super) fn load<B: Backend>(
    backend: &B,
    config: &EngineConfig,
    target: &ModelConfig,
    context_length: u32,
    kv_dtype: DType,
) -> Result<Option<LoadedDraft<B>>, StartError> {
    let Some(path) = path(config) else {
        return Ok(None);
    };
    let error = |error: &dyn std::fmt::Display| refused(path, error.to_string());
    let files = ModelFiles::open(path).map_err(|e| error(&e))?;
    check(path, &files.config, target, context_length)?;
    let needs = model::needs(&files.config, kv_dtype);
    backend.check_ops(&needs).map_err(|e| error(&e))?;
    let running = config.max_running_requests as usize;
    let limits = StepLimits {
        max_tokens: CATCH_UP_TOKENS.max(running),
        max_logit_rows: running,
    };
    let model = model::load(backend, &files, kv_dtype, limits).map_err(|e| error(&e))?;
    if !model.kv_pool_spec().states.is_empty() {
        let problem =
            "it has recurrent layers, whose state wrong drafts would spoil; give one without";
        return Err(refused(path, problem.to_owned()));
    }
    let tokenizer = text::load_tokenizer(path).map_err(|e| error(&e))?;
    Ok(Some(LoadedDraft {
        path: path.to_owned(),
        model,
        tokenizer,
    }))
}

/// The model's files, with its draft layer where that drafts.
///
/// # Errors
/// When there is none.
pub(super) fn with_layer(
    files: ModelFiles,
    config: &EngineConfig,
) -> Result<ModelFiles, StartError> {
    if !config.has_draft_layer() {
        return Ok(files);
    }
    files
        .with_draft_layer()
        .map_err(|error| StartError::Config {
            flag: "--speculative-algorithm",
            value: "NEXTN".to_owned(),
            problem: error.to_string(),
        })
}

/// What draws drafts by the layer of a model with `limits`, whose activations have this dtype.
pub(super) fn layer(
    files: &ModelFiles,
    limits: StepLimits,
    activations: DType,
) -> Option<DraftLayer> {
    files.config.draft_layer?;
    let state_bytes = files.config.hidden_size * activations.size_bytes();
    Some(DraftLayer::new(limits.max_logit_rows, state_bytes))
}

/// What the steps of an engine do with a draft layer: prefill sends what it makes of a prompt's last entry.
pub(super) fn drafting(config: &EngineConfig) -> Drafting {
    if !config.has_draft_layer() {
        return Drafting::Off;
    }
    Drafting::Entries {
        reads_states: match config.mode {
            DisaggregationMode::Prefill(_) => true,
            DisaggregationMode::Unified | DisaggregationMode::Decode(_) => false,
        },
    }
}

/// Of an engine that decodes.
fn path(config: &EngineConfig) -> Option<&Path> {
    let decodes = match config.mode {
        DisaggregationMode::Prefill(_) => false,
        DisaggregationMode::Unified | DisaggregationMode::Decode(_) => true,
    };
    match &config.speculative.as_ref().filter(|_| decodes)?.algorithm {
        SpeculativeAlgorithm::Ngram | SpeculativeAlgorithm::Nextn => None,
        SpeculativeAlgorithm::Standalone { draft_model_path } => Some(draft_model_path),
    }
}

fn check(
    path: &Path,
    draft: &ModelConfig,
    target: &ModelConfig,
    context_length: u32,
) -> Result<(), StartError> {
    if draft.vocab_size != target.vocab_size {
        let problem = format!(
            "it has {} token ids, with padding, and the model {}; give one with as many",
            draft.vocab_size, target.vocab_size
        );
        return Err(refused(path, problem));
    }
    if draft.context_len < context_length as usize {
        let problem = format!(
            "it reads {} tokens and requests may have {context_length}; lower --context-length, or give another",
            draft.context_len
        );
        return Err(refused(path, problem));
    }
    Ok(())
}

fn refused(path: &Path, problem: String) -> StartError {
    StartError::Config {
        flag: FLAG,
        value: path.display().to_string(),
        problem,
    }
}

// === impl LoadedDraft ===

impl<B: Backend> LoadedDraft<B> {
    /// The draft model with its KV, in pages of the target's `shape`.
    ///
    /// # Errors
    /// When a token means something else to it than to `target`, or the device lacks memory.
    pub(super) fn finish(
        self,
        backend: &B,
        shape: KvPoolShape,
        target: &Tokenizer,
        max_seqs: usize,
    ) -> Result<DraftModel, StartError> {
        let Self {
            path,
            model,
            tokenizer,
        } = self;
        let len = u32::try_from(target.vocab_size()).unwrap_or(u32::MAX);
        let differs = |&id: &u32| tokenizer.token_bytes(id) != target.token_bytes(id);
        if let Some(id) = (0..len).find(differs) {
            let problem = format!(
                "its token {id} is another than the model's; give one of the same vocabulary"
            );
            return Err(refused(&path, problem));
        }
        // It may be behind the model, so its windows are, too: its pages are all beside those of the full space.
        let shape = KvPoolShape {
            num_window_pages: shape.num_pages,
            num_slots: 0,
            ..shape
        };
        let kv = KvGroups::alloc(backend, model.kv_pool_spec(), shape, Reach::Process)?;
        let max_tokens = model.limits().max_tokens;
        let rank = LocalRank::new(backend.clone(), model, kv, max_seqs)?;
        Ok(DraftModel::new(Box::new(rank), max_tokens))
    }
}
