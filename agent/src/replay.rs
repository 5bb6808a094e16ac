//! `pd-agent replay`: computes requests again that `--observe-kv` recorded, in one process that does both prefill and
//! decode, and says for each whether its bits are the same, or where they part first.

mod args;
mod recording;

pub(crate) use args::ReplayArgs;

use crate::device;
use crate::wiring::log_to_stderr;
use anyhow::{Context, Result, ensure};
use parking_lot::Mutex;
use pd_engine::engine::{Engine, EngineConfig, EngineHandle, FinishReason, GenerateRequest};
use pd_engine::observe::{Comparison, Observation, ObservedEngine, Observer, Point, compare};
use recording::{Recording, Recordings};
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

/// Exit statuses: of what was compared some parts, or nothing could be compared.
const DIFFERS: u8 = 1;
const NOT_COMPARED: u8 = 2;

/// Keeps what the replaying engine computes.
#[derive(Debug, Default)]
struct Collector(Mutex<Vec<Point>>);

impl Observer for Collector {
    fn started(&self, _engine: ObservedEngine) {}

    fn observe(&self, observation: Observation) {
        self.0.lock().push(observation.point);
    }
}

/// Exits with 0 where all is equal, 1 where something differs, 2 where it cannot be said.
pub(crate) fn run(args: &ReplayArgs) -> ExitCode {
    let ended = log_to_stderr(&args.log_level).and_then(|()| replay(args));
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(DIFFERS),
        Err(why) => {
            tracing::error!("{why:#}");
            ExitCode::from(NOT_COMPARED)
        }
    }
}

/// Whether all requests are equal.
fn replay(args: &ReplayArgs) -> Result<bool> {
    let recordings = Recordings::read(&args.files)?;
    let engine = recordings.engine.clone();
    let wanted: Vec<Recording> = recordings
        .requests
        .into_iter()
        .filter(|recording| args.wants(recording))
        .collect();
    ensure!(
        !wanted.is_empty(),
        "the files hold no such request that was admitted; omit --rid and --room to replay all"
    );
    let collector = Arc::new(Collector::default());
    let replayer = start(args, &engine, &wanted, collector.clone())?;
    let mut all_equal = true;
    let mut out = std::io::stdout().lock();
    for recording in &wanted {
        let (line, is_equal) = replay_one(&replayer, &collector, recording, &engine)?;
        writeln!(out, "{line}").context("cannot write to standard output")?;
        all_equal &= is_equal;
    }
    Ok(all_equal)
}

/// An engine that computes what the recorded ones computed, one request at a time, with nothing cached.
fn start(
    args: &ReplayArgs,
    engine: &ObservedEngine,
    wanted: &[Recording],
    collector: Arc<Collector>,
) -> Result<EngineHandle> {
    let model_path = args.model_path.as_deref();
    let model_path = model_path.unwrap_or(engine.model_path.as_ref());
    let longest = wanted.iter().map(Recording::len).max().unwrap_or(0);
    let pages = longest.div_ceil(engine.page_size as usize) + 1;
    let tokens = u32::try_from(pages * engine.page_size as usize);
    let config = EngineConfig {
        context_length: Some(engine.context_length),
        dtype: args::dtype_of(engine)?,
        kv_cache_dtype: args::kv_dtype_of(engine)?,
        page_size: engine.page_size,
        max_total_tokens: Some(tokens.context("a recorded request has more tokens than any pool")?),
        max_running_requests: 1,
        disable_radix_cache: true,
        device: device::open(&args.device, model_path)?,
        observer: Some(collector),
        cache_dir: pd_engine::weights::digest::user_folder(),
        ..EngineConfig::new(model_path)
    };
    let replayer = Engine::start(config).context("the engine did not start")?;
    ensure!(
        replayer.info().kv_compat == engine.kv_compat,
        "{} is not what was recorded ({}): its files, dtype or page size differ; give the recorded model by --model-path",
        model_path.display(),
        engine.model_path
    );
    Ok(replayer)
}

/// Its line, and whether it is equal.
fn replay_one(
    replayer: &EngineHandle,
    collector: &Collector,
    recording: &Recording,
    engine: &ObservedEngine,
) -> Result<(String, bool)> {
    let name = recording.name();
    collector.0.lock().clear();
    compute(replayer, recording.request()?).with_context(|| name.clone())?;
    let replayed = std::mem::take(&mut *collector.0.lock());
    let page_size = engine.page_size as usize;
    let compared = compare(&recording.points, &replayed, page_size);
    let compared = compared.with_context(|| format!("{name}: the replay computed no prompt"))?;
    Ok(said(&name, &compared, recording))
}

fn said(name: &str, compared: &Comparison, recording: &Recording) -> (String, bool) {
    let Comparison {
        pages,
        states,
        steps,
        difference,
    } = compared;
    let counts = format!("{pages} pages, {states} states, {steps} steps");
    let mut line = match difference {
        Some(difference) => format!("{name}: differs {difference} (equal before: {counts})"),
        None => format!("{name}: equal: {counts}"),
    };
    if difference.is_none() && recording.drew_otherwise() {
        let _infallible = write!(
            line,
            "; decode may have drawn from another seed, so its steps were not compared: start all workers with one \
             --random-seed"
        );
    }
    (line, difference.is_none())
}

/// Computes the whole request.
fn compute(replayer: &EngineHandle, request: GenerateRequest) -> Result<()> {
    let mut answer = replayer.submit(request)?;
    while let Some(event) = answer.blocking_recv() {
        if let Some(FinishReason::Abort { reason, .. }) = event.finish {
            anyhow::bail!("the replay ended: {reason}");
        }
    }
    Ok(())
}
