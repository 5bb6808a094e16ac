//! What is due while workers change weights: a function of what routers and workers report, so that any operator process can
//! go on where another stopped.
//!
//! Each worker reads and checks the checkpoint while requests go on; one that cannot take it keeps all as they are. Then routers
//! hold new requests back, and once none is in flight, or too long a time has passed, all workers load it; when all serve it,
//! routers send requests again. So no answer has two versions, and prefill and decode never differ.

use pd_protocol::Role;
use pd_protocol::weights::{Checkpoint, WeightsPhase, WeightsStatus};
use pd_protocol::workers::DispatchStatus;
use std::time::Duration;

/// A checkpoint that could not be taken is tried again after so long.
const RETRY_AFTER_SECS: u64 = 30;
/// Processes that a message names.
const NAMED_MAX: usize = 3;

#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) routers: Vec<SeenRouter>,
    pub(crate) workers: Vec<SeenWorker>,
}

#[derive(Clone, Debug)]
pub(crate) struct SeenRouter {
    pub(crate) name: String,
    /// Nothing if it did not answer.
    pub(crate) dispatch: Option<DispatchStatus>,
}

#[derive(Clone, Debug)]
pub(crate) struct SeenWorker {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) reported: Reported,
}

#[derive(Clone, Debug)]
pub(crate) enum Reported {
    /// What is wanted.
    Serves,
    Other(WeightsStatus),
    /// It did not answer: why.
    Silent(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Have a worker read and check the checkpoint.
    Prepare(String),
    /// Have a router hold requests back, or hold them back longer.
    Pause(String),
    /// Have a worker load it; with `abort` what it runs ends at once.
    Switch { worker: String, abort: bool },
    /// Have a router send requests again.
    Resume(String),
}

/// How far it is, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Served(String),
    UnderWay(String),
    /// A worker cannot take the weights: why. Those from before serve.
    Refused(String),
}

/// A worker that serves other weights.
#[derive(Clone, Copy)]
struct Late<'a> {
    worker: &'a SeenWorker,
    status: &'a WeightsStatus,
}

/// `drain_limit`: how long requests in flight may go on.
pub(crate) fn decide(
    wanted: &Checkpoint,
    seen: &Seen,
    drain_limit: Duration,
) -> (Vec<Step>, Progress) {
    let late: Vec<Late> = seen.workers.iter().filter_map(Late::of).collect();
    let silent = seen.workers.iter().filter_map(|it| match &it.reported {
        Reported::Silent(why) => Some(format!("{} cannot be asked: {why}", it.name)),
        Reported::Serves | Reported::Other(_) => None,
    });
    let silent = listed(silent);
    let version = &wanted.weight_version;
    if late.is_empty() && silent.is_none() {
        let count = seen.workers.len();
        let said = format!("{count} workers serve weights {version}");
        return (resume(seen), Progress::Served(said));
    }
    let switches = late.iter().any(|it| it.switches());
    if !switches && let Some(silent) = silent {
        return (resume(seen), Progress::UnderWay(silent));
    }
    let mute = seen.routers.iter().filter(|it| it.dispatch.is_none());
    if !switches && let Some(mute) = listed(mute.map(|it| it.name.clone())) {
        let said = format!("weights {version} wait for routers that cannot be asked: {mute}");
        return (resume(seen), Progress::UnderWay(said));
    }
    if late.iter().all(|it| it.is_ready(wanted)) {
        return switch(&late, seen, version, drain_limit);
    }
    let steps = late.iter().filter(|it| it.lacks(wanted));
    let steps = steps.map(|it| Step::Prepare(it.worker.name.clone()));
    let mut steps: Vec<Step> = steps.collect();
    steps.extend(if switches { hold(seen) } else { resume(seen) });
    let refused = late.iter().filter_map(|it| it.refusal(wanted));
    let progress = match listed(refused) {
        Some(why) if seen.workers.iter().any(SeenWorker::serves) => Progress::Refused(format!(
            "some workers serve weights {version}, others cannot load them, and the two make no pair: take the change \
             back, or correct it; {why}"
        )),
        Some(why) => Progress::Refused(format!(
            "weights {version} are not taken, and those from before serve: {why}"
        )),
        None => Progress::UnderWay(format!(
            "weights {version} are read by {}",
            names(late.iter().filter(|it| !it.is_ready(wanted)))
        )),
    };
    (steps, progress)
}

/// All that are late have read the checkpoint: routers hold requests back, and workers load.
fn switch(
    late: &[Late],
    seen: &Seen,
    version: &str,
    drain_limit: Duration,
) -> (Vec<Step>, Progress) {
    let held = |router: &SeenRouter| router.dispatch.and_then(|it| it.paused_ms);
    let is_held = seen.routers.iter().any(|router| held(router).is_some());
    // Workers of one role that serve other weights make no pair, and so have no requests: one that restarted.
    let of = |role| late.iter().any(|it| it.worker.role == role);
    let one_sided = of(Role::Prefill) != of(Role::Decode) && !of(Role::Unified);
    if one_sided && !is_held {
        let steps = switches(late, false);
        let said = format!("weights {version} are loaded by {}", names(late.iter()));
        return (steps, Progress::UnderWay(said));
    }
    let limit = u64::try_from(drain_limit.as_millis()).unwrap_or(u64::MAX);
    let is_late = |router: &SeenRouter| held(router).is_some_and(|ms| ms >= limit);
    let overdue = seen.routers.iter().any(is_late);
    let mut steps: Vec<Step> = seen
        .routers
        .iter()
        .map(|router| Step::Pause(router.name.clone()))
        .collect();
    let unheld = seen.routers.iter().filter(|it| held(it).is_none());
    if let Some(unheld) = listed(unheld.map(|it| it.name.clone())) {
        let said = format!("routers hold requests back for weights {version}: {unheld} not yet");
        let switches = late.iter().any(|it| it.switches());
        // One that never does, such as of an earlier version, must not hold up what the others could serve.
        let steps = if overdue && !switches {
            resume(seen)
        } else {
            steps
        };
        return (steps, Progress::UnderWay(said));
    }
    let in_flight = seen.routers.iter().filter_map(|it| it.dispatch);
    let in_flight: u64 = in_flight.map(|it| it.in_flight).sum();
    let waiting = late.iter().any(|it| !it.switches());
    if waiting && in_flight > 0 && !overdue {
        let said = format!("{in_flight} requests end before weights {version} are loaded");
        return (steps, Progress::UnderWay(said));
    }
    steps.extend(switches(late, in_flight > 0));
    let said = format!("weights {version} are loaded by {}", names(late.iter()));
    (steps, Progress::UnderWay(said))
}

fn switches(late: &[Late], abort: bool) -> Vec<Step> {
    let rest = late
        .iter()
        .filter(|it| it.status.phase == WeightsPhase::Serving);
    let step = |it: &Late| Step::Switch {
        worker: it.worker.name.clone(),
        abort,
    };
    rest.map(step).collect()
}

fn resume(seen: &Seen) -> Vec<Step> {
    let held = seen.routers.iter().filter(|router| router.is_held());
    held.map(|router| Step::Resume(router.name.clone()))
        .collect()
}

/// Has routers that hold requests back do so longer.
fn hold(seen: &Seen) -> Vec<Step> {
    let held = seen.routers.iter().filter(|router| router.is_held());
    held.map(|router| Step::Pause(router.name.clone()))
        .collect()
}

fn names<'a>(late: impl Iterator<Item = &'a Late<'a>>) -> String {
    listed(late.map(|it| it.worker.name.clone())).unwrap_or_default()
}

/// The first few, and how many more there are.
fn listed(all: impl Iterator<Item = String>) -> Option<String> {
    let all: Vec<String> = all.collect();
    let (named, more) = all.split_at(all.len().min(NAMED_MAX));
    let named = (!named.is_empty()).then(|| named.join(", "))?;
    Some(match more.len() {
        0 => named,
        more => format!("{named} and {more} more"),
    })
}

// === impl SeenRouter ===

impl SeenRouter {
    fn is_held(&self) -> bool {
        self.dispatch.is_some_and(|it| it.paused_ms.is_some())
    }
}

// === impl SeenWorker ===

impl SeenWorker {
    fn serves(&self) -> bool {
        matches!(self.reported, Reported::Serves)
    }
}

// === impl Late ===

impl<'a> Late<'a> {
    fn of(worker: &'a SeenWorker) -> Option<Self> {
        match &worker.reported {
            Reported::Other(status) => Some(Self { worker, status }),
            Reported::Serves | Reported::Silent(_) => None,
        }
    }

    /// Whether it lets requests end, or loads.
    fn switches(self) -> bool {
        self.status.phase.replaces()
    }

    /// Whether it has read the checkpoint.
    fn is_ready(self, wanted: &Checkpoint) -> bool {
        self.switches() || self.status.prepared.as_ref() == Some(wanted)
    }

    /// Whether it is to read it now.
    fn lacks(self, wanted: &Checkpoint) -> bool {
        let failed = self.status.failed.as_ref();
        // One that could not be loaded would have requests wait for nothing again.
        let waits = failed.is_some_and(|it| {
            it.checkpoint == *wanted && (it.was_loaded || it.age_secs < RETRY_AFTER_SECS)
        });
        self.status.phase == WeightsPhase::Serving && !self.is_ready(wanted) && !waits
    }

    /// Why it does not take it.
    fn refusal(self, wanted: &Checkpoint) -> Option<String> {
        let failed = self.status.failed.as_ref()?;
        let is_of_wanted = failed.checkpoint == *wanted && !self.is_ready(wanted);
        is_of_wanted.then(|| format!("{}: {}", self.worker.name, failed.reason))
    }
}

#[cfg(test)]
mod tests;
