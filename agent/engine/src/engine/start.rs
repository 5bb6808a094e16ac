//! From an `EngineConfig` to a running engine: check → device → model → KV pool → transfer →
//! thread. Each step needs the one before; the tokenizer and the digests of the model's files are
//! computed alongside the model.

use super::config::{DecodeConfig, Device, DisaggregationMode, EngineConfig};
use super::device::{self, Numbers};
use super::identity::Identity;
use super::info::EngineInfo;
use super::shared::{Shared, SharedParts, StopOnDrop};
use super::sizes;
use super::{EngineHandle, Scheduler, commands};
use crate::disaggregation::TransferEnd;
use crate::disaggregation::decode::{Decode, DecodeLimits};
use crate::disaggregation::prefill::Prefill;
use crate::disaggregation::start::TransferStart;
use crate::event_loop::{EventLoop, LoopWaker, Mode, SetOnDrop};
use crate::kvcache::group::{KvGroups, KvPoolShape};
use crate::kvcache::pool::KvCache;
use crate::metrics::{EngineMetrics, Throughput};
use crate::model::{self, ModelFiles};
use crate::model_runner::ModelRunner;
use crate::req::ReqFactory;
use crate::resources::{DeferredFree, Resources};
use crate::schedule::ScheduleLimits;
use crate::schedule::unified::Unified;
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
    Transfer(String),
    #[error("cannot start the scheduler's thread: {0}")]
    Thread(std::io::Error),
}

/// Everything that is read or allocated before the scheduler is assembled.
struct Loaded<B: Backend> {
    backend: B,
    runner: ModelRunner<B>,
    info: EngineInfo,
    limits: ScheduleLimits,
    shape: KvPoolShape,
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
    let (handle, scheduler) = match &config.device {
        Device::Cpu { threads, .. } => {
            start_on(config, |weights| device::cpu(config, *threads, weights))
        }
        Device::Cuda {
            driver,
            deterministic,
            ..
        } => start_on(config, |_| device::cuda(config, driver, *deterministic)),
    }?;
    let info = &handle.shared.info;
    tracing::info!(
        seconds = started.elapsed().as_secs_f64(),
        model = info.model_path,
        max_total_tokens = info.max_total_tokens,
        "engine started"
    );
    Ok((handle, scheduler))
}

/// Loads and assembles on the backend that `make` starts for the model's weights.
fn start_on<B: Backend>(
    config: &EngineConfig,
    make: impl FnOnce(&Weights) -> Result<Numbers<B>, StartError>,
) -> Result<(EngineHandle, Scheduler), StartError> {
    assemble(load(config, make)?, config)
}

fn load<B: Backend>(
    config: &EngineConfig,
    make: impl FnOnce(&Weights) -> Result<Numbers<B>, StartError>,
) -> Result<Loaded<B>, StartError> {
    let files = ModelFiles::open(&config.model_path).map_err(model_error)?;
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
    let model = model::load(&backend, &files, step_limits).map_err(model_error)?;
    let spec = model.kv_pool_spec();
    let kv_bytes = device::kv_memory_bytes(&config.device)?;
    let shape = sizes::pool_shape(config, &spec, backend.activation_dtype(), kv_bytes)?;
    for group in &spec.groups {
        backend.check_kv(shape.dtype, group.head_dim)?;
    }
    let kv = KvGroups::alloc(&backend, spec, shape)?;
    let graph_max_seqs = device::graph_max_seqs(&config.device);
    let max_seqs = limits.max_running_requests;
    let runner = ModelRunner::new(backend.clone(), model, kv, max_seqs, graph_max_seqs)?;

    let (tokenizer, chat_template) = text
        .join()
        .map_err(|_| StartError::Model("the tokenizer's loader panicked".to_owned()))?
        .map_err(model_error)?;
    let digests = digests.and_then(|task| task.wait()).map_err(model_error)?;
    let identity = Identity::new(&files.config, shape, dtype, &digests);
    Ok(Loaded {
        info: identity.info(config, &files, shape, context_length),
        backend,
        runner,
        limits,
        shape,
        hidden_size: files.config.hidden_size,
        tokenizer: Arc::new(tokenizer),
        chat_template,
    })
}

/// Assembles the scheduler.
fn assemble<B: Backend>(
    loaded: Loaded<B>,
    config: &EngineConfig,
) -> Result<(EngineHandle, Scheduler), StartError> {
    let (commands_tx, commands_rx) = commands::queue();
    let waker = LoopWaker::new(commands_tx.clone());
    let (mode, transfer_failure) = mode(&loaded, config, &waker)?;
    let Loaded {
        backend,
        runner,
        info,
        shape,
        tokenizer,
        chat_template,
        ..
    } = loaded;
    let resources = Resources {
        runner,
        cache: KvCache::new(sizes::cache_sizes(config, shape)),
        metrics: EngineMetrics::new(),
        timelines: Arc::default(),
        throughput: Throughput::new(Instant::now()),
        deferred_free: DeferredFree::default(),
    };
    if let Some(transfer) = config.mode.transfer() {
        transfer.metrics.register(resources.metrics.registry());
    }
    let req_factory = ReqFactory::new(&info, config.random_seed, tokenizer.clone());
    let shared = Arc::new(Shared::new(SharedParts {
        commands_tx: commands_tx.clone(),
        info,
        tokenizer,
        chat_template,
        metrics: resources.metrics.clone(),
        timelines: resources.timelines.clone(),
        max_requests: u64::from(config.max_running_requests)
            + u64::from(config.max_queued_requests),
        transfer_failure,
    }));
    let event_loop = EventLoop {
        commands_rx,
        waker,
        resources,
        mode,
        req_factory,
        is_idle: true,
        overlaps: config.overlap_schedule.unwrap_or(backend.replays()),
        ahead: None,
        _stopped: SetOnDrop(shared.stopped.clone()),
    };
    let scheduler = Scheduler::new(Box::new(event_loop), commands_tx.sent());
    let handle = EngineHandle {
        shared,
        _stop: Arc::new(StopOnDrop { commands_tx }),
    };
    Ok((handle, scheduler))
}

/// A mode, and the failure of its KV transfer, if it has one.
type StartedMode<B> = (Box<dyn Mode<B> + Send>, Option<Failure>);

fn mode<B: Backend>(
    loaded: &Loaded<B>,
    config: &EngineConfig,
    waker: &LoopWaker,
) -> Result<StartedMode<B>, StartError> {
    let end = |transfer: &TransferConfig, ports| {
        let waker = waker.clone();
        let start = TransferStart {
            info: &loaded.info,
            hidden_size: loaded.hidden_size,
            transfer: transfer.clone(),
            ports,
            waker: Arc::new(move || waker.wake()),
        };
        TransferEnd::start(&loaded.backend, loaded.runner.kv(), loaded.shape, start)
    };
    let limits = loaded.limits;
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
            let limits = decode_limits(decode, loaded.info.vocab_size);
            let end = end(&decode.transfer, None)?;
            let failure = end.manager.failure();
            (Box::new(Decode::new(limits, end)), Some(failure))
        }
    })
}

fn decode_limits(config: &DecodeConfig, vocab_size: u32) -> DecodeLimits {
    DecodeLimits {
        reserved_decode_tokens: config.num_reserved_decode_tokens as usize,
        polling_interval: config.polling_interval,
        vocab_size,
    }
}

fn model_error(error: impl std::fmt::Display) -> StartError {
    StartError::Model(error.to_string())
}
