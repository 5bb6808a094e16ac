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
use pd_engine::grammar::{Grammar, GrammarSource};
use pd_engine::observe::{
    Comparison, Difference, Observation, ObservedEngine, Observer, Point, compare,
};
use recording::{Recording, Recordings};
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

/// What became of a request, from the best to the worst; the exit status is that of the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Equal,
    /// It cannot be said.
    NotCompared,
    Differs,
}

/// Keeps what the replaying engine computes.
#[derive(Debug, Default)]
struct Collector(Mutex<Vec<Point>>);

impl Observer for Collector {
    fn started(&self, _engine: ObservedEngine) {}

    fn observe(&self, observation: Observation) {
        self.0.lock().push(observation.point);
    }
}

/// Exits with 0 where all is equal, 1 where something differs, 2 where nothing differs and of something it cannot be said.
pub(crate) fn run(args: &ReplayArgs) -> ExitCode {
    let ended = log_to_stderr(&args.log_level).and_then(|()| replay(args));
    match ended {
        Ok(worst) => worst.into(),
        Err(why) => {
            tracing::error!("{why:#}");
            Outcome::NotCompared.into()
        }
    }
}

/// The worst outcome of a request.
fn replay(args: &ReplayArgs) -> Result<Outcome> {
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
    let mut worst = Outcome::Equal;
    let mut out = std::io::stdout().lock();
    for recording in &wanted {
        let (line, outcome) = replay_one(&replayer, &collector, recording, &engine);
        writeln!(out, "{line}").context("cannot write to standard output")?;
        worst = worst.max(outcome);
    }
    replayer.end();
    Ok(worst)
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

/// Its line, and what became of it.
fn replay_one(
    replayer: &EngineHandle,
    collector: &Collector,
    recording: &Recording,
    engine: &ObservedEngine,
) -> (String, Outcome) {
    let name = recording.name();
    collector.0.lock().clear();
    let ended = recording.request(|source| compile(replayer, source));
    let ended = ended.and_then(|request| compute(replayer, request));
    let replayed = std::mem::take(&mut *collector.0.lock());
    let page_size = engine.page_size as usize;
    let compared = compare(&recording.points, &replayed, page_size);
    match (compared, ended) {
        (Some(compared), Ok(())) => said(&name, &compared, recording),
        // What was computed before it failed is compared, too.
        (Some(compared), Err(_)) if has_other_bits(&compared) => said(&name, &compared, recording),
        (_, Err(why)) => (
            format!("{name}: not compared: {why:#}"),
            Outcome::NotCompared,
        ),
        (None, Ok(())) => (
            format!("{name}: not compared: the replay computed no prompt"),
            Outcome::NotCompared,
        ),
    }
}

/// Whether something differs but that the replay did not get as far.
fn has_other_bits(compared: &Comparison) -> bool {
    let is_missing = |it: &Difference| matches!(it, Difference::NoStep { .. });
    compared.difference.is_some_and(|it| !is_missing(&it))
}

fn said(name: &str, compared: &Comparison, recording: &Recording) -> (String, Outcome) {
    let Comparison {
        pages,
        states,
        steps,
        difference,
    } = compared;
    let counts = format!("{pages} pages, {states} states, {steps} steps");
    if let Some(difference) = difference {
        let line = format!("{name}: differs {difference} (equal before: {counts})");
        return (line, Outcome::Differs);
    }
    if pages + states + steps == 0 {
        let line = format!("{name}: not compared: nothing was recorded of it after its admission");
        return (line, Outcome::NotCompared);
    }
    let mut line = format!("{name}: equal: {counts}");
    if recording.drew_otherwise() {
        let _infallible = write!(
            line,
            "; decode may have drawn from another seed, so its steps were not compared: start all workers with one \
             --random-seed"
        );
    }
    (line, Outcome::Equal)
}

// === impl Outcome ===

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Equal => Self::SUCCESS,
            Outcome::Differs => Self::from(1),
            Outcome::NotCompared => Self::from(2),
        }
    }
}

fn compile(replayer: &EngineHandle, source: GrammarSource) -> Result<Grammar> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    Ok(runtime.block_on(replayer.grammars().compile(source))?)
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
