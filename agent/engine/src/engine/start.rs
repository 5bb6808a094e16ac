//! From an `EngineConfig` to a running engine: check → device → model → KV pool → transfer →
//! thread. Each step needs the one before; the tokenizer and the digests of the model's files are
//! computed alongside the model.

use super::config::{DecodeConfig, Device, DisaggregationMode, EngineConfig};
use super::config::{SpeculativeAlgorithm, SpeculativeConfig};
use super::device::{self, Numbers};
use super::draft;
use super::identity::Identity;
use super::replacement::CheckpointForm;
use super::shared::{Shared, State, StopOnDrop};
use super::sizes;
use super::{EngineHandle, Scheduler};
use crate::command;
use crate::disaggregation::TransferEnd;
use crate::disaggregation::start::{TransferStart, TransferStartError};
use crate::event_loop::{EventLoop, EventLoopParts, LoopWaker};
use crate::grammar::Grammars;
use crate::in_flight::InFlightRequests;
use crate::info::EngineInfo;
use crate::kvcache::group::{ExportError, KvGroups, KvPoolShape, RankMemory};
use crate::kvcache::pool::KvCache;
use crate::latch::SetOnDrop;
use crate::mode::Mode;
use crate::mode::decode::{Decode, DecodeLimits};
use crate::mode::prefill::Prefill;
use crate::mode::unified::Unified;
use crate::model::{self, ModelFiles};
use crate::observe::ObservedEngine;
use crate::profile::PhaseClock;
use crate::ranks::Ranks;
use crate::ranks::local::LocalRank;
use crate::recorder::Recorder;
use crate::req::ReqFactory;
use crate::resources::Resources;
use crate::schedule::ScheduleLimits;
use crate::speculate::layer::DraftLayer;
use crate::speculate::model::DraftModel;
use crate::speculate::ngram::Ngram;
use crate::speculate::switch::Lately;
use crate::speculate::{DraftSource, Speculation};
use crate::step::{Padding, StepBuilder};
use crate::text::{self, ChatTemplate, Tokenizer};
use crate::weights::Weights;
use crate::weights::digest::DigestCache;
use pd_compute::{Backend, ComputeError};
use pd_kv_transfer::{Failure, TransferConfig};
use std::sync::Arc;
use std::time::Instant;

/// Why an engine did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{flag} is {value}; {problem}")]
    Config {
        flag: &'static str,
        value: String,
        problem: String,
    },
    #[error("cannot load the model: {0}")]
    Model(String),
    #[error("cannot set up the device: {0}")]
    Device(#[from] ComputeError),
    #[error("cannot start the KV transfer: {0}")]
    Transfer(#[from] TransferStartError),
    #[error("cannot share the KV pool with a transfer: {0}")]
    Export(#[from] ExportError),
    #[error("cannot start the scheduler's thread: {0}")]
    Thread(std::io::Error),
}

/// Everything that is read or allocated before the scheduler is assembled.
struct Loaded {
    ranks: Box<dyn Ranks>,
    draft_model: Option<DraftModel>,
    draft_layer: Option<DraftLayer>,
    /// For a transfer, if there is one.
    memory: Option<RankMemory>,
    info: EngineInfo,
    form: CheckpointForm,
    limits: ScheduleLimits,
    shape: KvPoolShape,
    /// Of the layers of the window space.
    window: Option<usize>,
    /// Bytes of a slot of recurrent state.
    slot_bytes: usize,
    padding: Padding,
    /// Whether steps overlap unless the user says otherwise.
    overlaps: bool,
    hidden_size: usize,
    tokenizer: Arc<Tokenizer>,
    chat_template: Option<ChatTemplate>,
}

pub(super) fn start(config: EngineConfig) -> Result<EngineHandle, StartError> {
    let (handle, scheduler) = start_by_turns(&config)?;
    let thread = std::thread::Builder::new().name("pd-scheduler".to_owned());
    thread
        .spawn(move || scheduler.run())
        .map_err(StartError::Thread)?;
    Ok(handle)
}

pub(super) fn start_by_turns(
    config: &EngineConfig,
) -> Result<(EngineHandle, Scheduler), StartError> {
    let started = Instant::now();
    sizes::check(config)?;
    let loaded = match &config.device {
        Device::Cpu { threads, .. } => {
            load(config, |weights| device::cpu(config, *threads, weights))
        }
        Device::Cuda {
            driver,
            deterministic,
            ..
        } => load(config, |_| device::cuda(config, driver, *deterministic)),
    }?;
    let (handle, scheduler) = assemble(loaded, config)?;
    let info = &handle.shared.info;
    tracing::info!(
        seconds = started.elapsed().as_secs_f64(),
        model = info.model_path,
        max_total_tokens = info.max_total_tokens,
        "engine started"
    );
    Ok((handle, scheduler))
}

/// Loads onto the backend that `make` starts for the model's weights.
fn load<B: Backend>(
    config: &EngineConfig,
    make: impl FnOnce(&Weights) -> Result<Numbers<B>, StartError>,
) -> Result<Loaded, StartError> {
    let files = ModelFiles::open(&config.model_path).map_err(model_error)?;
    let files = draft::with_layer(files, config)?;
    let sources = config.text_sources();
    let digested = [files.files(), sources.replacements()].concat();
    let digests = DigestCache::new(config.cache_dir.clone()).spawn(digested);
    let text = std::thread::Builder::new().name("pd-text".to_owned());
    let text = text
        .spawn(move || text::load_from(&sources))
        .map_err(StartError::Thread)?;

    let Numbers { backend, dtype } = make(&files.weights)?;
    let context_length = sizes::context_length(config, &files.config)?;
    let limits = sizes::schedule_limits(config);
    let step_limits = sizes::step_limits(config, &limits, context_length);
    let kv_dtype = sizes::kv_dtype(config, dtype);
    backend.check_ops(&model::needs(&files.config, kv_dtype))?;
    let model = model::load(&backend, &files, kv_dtype, step_limits).map_err(model_error)?;
    let draft = draft::load(&backend, config, &files.config, context_length, kv_dtype)?;
    let spec = model.kv_pool_spec();
    let draft_spec = draft.as_ref().map(|draft| draft.model.kv_pool_spec());
    let kv_bytes = device::kv_memory_bytes(&config.device)?;
    let dtypes = (kv_dtype, backend.activation_dtype());
    let shape = sizes::pool_shape(config, &spec, draft_spec.as_ref(), dtypes, kv_bytes)?;
    let slot_bytes = KvPoolShape::bytes_per_slot(&spec, backend.activation_dtype());
    let window = spec.window();
    let kv = KvGroups::alloc(&backend, spec, shape, config.mode.reach())?;
    let transfers = config.mode.transfer().is_some();
    let memory = transfers.then(|| kv.memory(&backend)).transpose()?;
    let overlaps = backend.replays();
    let padding = Padding {
        graph_max_seqs: if overlaps {
            device::graph_max_seqs(&config.device)
        } else {
            0
        },
        max_seqs: limits.max_running_requests,
    };
    let rank = LocalRank::new(backend.clone(), model, kv, padding.max_seqs)?;

    let (tokenizer, chat_template) = text
        .join()
        .map_err(|_| StartError::Model("the tokenizer's loader panicked".to_owned()))?
        .map_err(model_error)?;
    let draft_model = draft
        .map(|draft| draft.finish(&backend, shape, &tokenizer, padding.max_seqs))
        .transpose()?;
    let digests = digests.and_then(|task| task.wait()).map_err(model_error)?;
    let identity = Identity::new(&files.config, (shape, window), dtype, &digests);
    Ok(Loaded {
        info: identity.info(config, &files, shape, context_length),
        form: CheckpointForm::of(&files),
        ranks: Box::new(rank),
        draft_model,
        draft_layer: draft::layer(&files, step_limits, backend.activation_dtype()),
        memory,
        limits,
        shape,
        window,
        slot_bytes,
        padding,
        overlaps,
        hidden_size: files.config.hidden_size,
        tokenizer: Arc::new(tokenizer),
        chat_template,
    })
}

/// Assembles the scheduler.
fn assemble(
    mut loaded: Loaded,
    config: &EngineConfig,
) -> Result<(EngineHandle, Scheduler), StartError> {
    let (commands_tx, commands_rx) = command::queue();
    let waker = LoopWaker::new(commands_tx.clone());
    let (mode, transfer_failure) = mode(&mut loaded, config, &waker)?;
    let recorder = Recorder::new(loaded.slot_bytes);
    let resources = Resources::new(
        loaded.ranks,
        KvCache::new(sizes::cache_sizes(config, loaded.shape, loaded.window)),
        StepBuilder::new(loaded.padding, &recorder.metrics).with_drafting(draft::drafting(config)),
        recorder,
        config.observer.clone(),
    )
    .with_draft_model(loaded.draft_model)
    .with_draft_layer(loaded.draft_layer);
    let metrics = &resources.recorder.metrics;
    if let Some(transfer) = config.mode.transfer() {
        transfer.metrics.register(metrics.registry());
    }
    let max_requests =
        u64::from(config.max_running_requests) + u64::from(config.max_queued_requests);
    let state = State::default();
    let stopped = SetOnDrop(state.stopped.clone());
    if let Some(observer) = &config.observer {
        observer.started(ObservedEngine::of(&loaded.info));
    }
    // A state is observed before the next step overwrites it.
    let overlaps = config.overlap_schedule.unwrap_or(loaded.overlaps) && config.observer.is_none();
    let speculative = config.speculative.as_ref();
    // Slots of recurrent states hold prefixes, which are worth more, unless some are there for drafts.
    let jumps = config.jump_forward && (speculative.is_some() || !resources.cache.has_states());
    let req_factory = ReqFactory::new(
        &loaded.info,
        config.random_seed,
        loaded.tokenizer.clone(),
        speculative.map(|config| speculation(config, overlaps)),
        jumps.then(Lately::default),
    );
    let grammars = Grammars::new(
        &loaded.info,
        loaded.tokenizer.clone(),
        metrics.grammars.clone(),
    );
    let shared = Arc::new(Shared {
        commands_tx: commands_tx.clone(),
        grammars,
        info: loaded.info,
        form: loaded.form,
        tokenizer: loaded.tokenizer,
        chat_template: loaded.chat_template,
        metrics: metrics.clone(),
        timelines: resources.recorder.timelines.clone(),
        in_flight: Arc::new(InFlightRequests::new(max_requests)),
        profiler: Arc::default(),
        transfer_failure,
        state,
    });
    let event_loop = EventLoop::new(EventLoopParts {
        commands_rx,
        waker,
        resources,
        mode,
        req_factory,
        overlaps,
        clock: PhaseClock::new(shared.profiler.clone()),
        stopped,
    });
    let scheduler = Scheduler::new(event_loop, commands_tx.sent());
    let handle = EngineHandle {
        shared,
        _stop: Arc::new(StopOnDrop { commands_tx }),
    };
    Ok((handle, scheduler))
}

/// A mode, and the failure of its KV transfer, if it has one.
type StartedMode = (Box<dyn Mode + Send>, Option<Failure>);

fn mode(
    loaded: &mut Loaded,
    config: &EngineConfig,
    waker: &LoopWaker,
) -> Result<StartedMode, StartError> {
    let (limits, vocab_size) = (loaded.limits, loaded.info.vocab_size);
    let mut end = |transfer: &TransferConfig, ports| {
        let waker = waker.clone();
        let memory = loaded.memory.take();
        TransferEnd::start(TransferStart {
            info: &loaded.info,
            memory: memory.expect("the pool of a mode with a transfer is exported"),
            hidden_size: loaded.hidden_size,
            transfer: transfer.clone(),
            ports,
            waker: Arc::new(move || waker.wake()),
        })
    };
    Ok(match &config.mode {
        DisaggregationMode::Unified => {
            let unified = Unified::new(limits, config.schedule_conservativeness);
            (Box::new(unified), None)
        }
        DisaggregationMode::Prefill(prefill) => {
            let ports = (prefill.bootstrap_port, prefill.http_port);
            let end = end(&prefill.transfer, Some(ports))?;
            let failure = end.manager.failure();
            (Box::new(Prefill::new(limits, end)), Some(failure))
        }
        DisaggregationMode::Decode(decode) => {
            let limits = decode_limits(decode, vocab_size, limits.draft_rows);
            let end = end(&decode.transfer, None)?;
            let failure = end.manager.failure();
            (Box::new(Decode::new(limits, end)), Some(failure))
        }
    })
}

fn decode_limits(config: &DecodeConfig, vocab_size: u32, draft_rows: usize) -> DecodeLimits {
    DecodeLimits {
        reserved_decode_tokens: config.num_reserved_decode_tokens as usize,
        polling_interval: config.polling_interval,
        vocab_size,
        draft_rows,
    }
}

fn speculation(config: &SpeculativeConfig, overlaps: bool) -> Speculation {
    Speculation {
        num_steps: config.num_steps as usize,
        source: match config.algorithm {
            SpeculativeAlgorithm::Ngram => {
                DraftSource::Drafters(Arc::new(|| Box::new(Ngram::default())))
            }
            SpeculativeAlgorithm::Standalone { .. } | SpeculativeAlgorithm::Nextn => {
                DraftSource::Model(Lately::default())
            }
        },
        overlaps,
    }
}

fn model_error(error: impl std::fmt::Display) -> StartError {
    StartError::Model(error.to_string())
}
