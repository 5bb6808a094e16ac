//! Replaces the keys of a deployment by a new one, without a lost request: which step is due. A function of what the
//! annotation asks for, what the Secret says, and what every process reports of itself; so an operator that takes over goes
//! on where another stopped. Decision 0068.

use pd_identity::{KEYS_MAX, KeyUse};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// How long all have to agree before the next step: no handshake that began before takes longer.
const SETTLED: Duration = Duration::from_secs(10);
/// Processes that a message names.
const NAMED_MAX: usize = 3;

/// What the Secret says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stored {
    /// Public names of its keys, in their order.
    pub(crate) ids: Vec<String>,
    /// The last request that was carried out.
    pub(crate) finished: Option<String>,
    /// The rotation that is under way.
    pub(crate) rotating: Option<Rotating>,
}

/// A rotation that has begun, as the Secret remembers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rotating {
    /// The annotation's value that asked for it.
    pub(crate) request: String,
    /// The key that comes, and those that go.
    pub(crate) new: String,
    pub(crate) old: Vec<String>,
}

/// What all processes are to do before a rotation goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Verify with the new key, which is the last of the Secret.
    Verify,
    /// Sign with it: it is the first.
    Sign,
    /// Let go of the old ones: it is alone.
    Forget,
}

/// A process of the deployment, and what it reports of its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) reported: Reported,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reported {
    Keys(Vec<(String, KeyUse)>),
    /// It may have read its key file and cannot report yet.
    Starting(String),
    /// It ought to report and does not: why.
    Silent(String),
}

/// Since when all processes have done what a stage asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Agreement {
    new: String,
    stage: Stage,
    since: Instant,
}

/// What to change in the Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Add a new key as the last.
    Begin { request: String },
    /// Put the new key first.
    MoveFirst,
    /// Remove all others.
    RemoveOld,
    /// Note that the request was carried out.
    Finish,
    /// Forget about a rotation whose keys were changed by hand, and that is not asked for any more.
    GiveUp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Nothing was ever asked for.
    None,
    /// What was asked for is done.
    Rest,
    Take(Step),
    /// Until all processes have done what the stage asks; what is awaited, in words.
    Wait(Stage, String),
    /// Until someone acts: why.
    Hold(String),
}

/// The next step. `agreement` is what this operator remembers between two of these.
pub(crate) fn decide(
    wanted: Option<&str>,
    stored: &Stored,
    processes: &[Process],
    agreement: &mut Option<Agreement>,
    now: Instant,
) -> Decision {
    let before = agreement.take();
    let Some(rotating) = &stored.rotating else {
        return match wanted {
            Some(request) if stored.finished.as_deref() != Some(request) => begin(request, stored),
            None => Decision::None,
            Some(_) => Decision::Rest,
        };
    };
    let Some(stage) = rotating.stage(&stored.ids) else {
        return match wanted {
            None => Decision::Take(Step::GiveUp),
            Some(request) if request != rotating.request => begin(request, stored),
            Some(_) => Decision::Hold(
                "the keys of its Secret were changed by hand; restore them, or give the annotation another value to \
                 begin again with the keys as they are"
                    .to_owned(),
            ),
        };
    };
    let awaited = rotating.awaited(stage, processes);
    if let Some(awaited) = awaited {
        return awaited;
    }
    let agreed = Agreement {
        new: rotating.new.clone(),
        stage,
        since: now,
    };
    let agreed = before
        .filter(|before| before.new == agreed.new && before.stage == stage)
        .unwrap_or(agreed);
    let since = agreed.since;
    *agreement = Some(agreed);
    match stage {
        Stage::Forget => Decision::Take(Step::Finish),
        _ if now.duration_since(since) < SETTLED => Decision::Wait(
            stage,
            "all processes do; handshakes that began before come to their end".to_owned(),
        ),
        Stage::Verify => Decision::Take(Step::MoveFirst),
        Stage::Sign => Decision::Take(Step::RemoveOld),
    }
}

fn begin(request: &str, stored: &Stored) -> Decision {
    if stored.ids.is_empty() {
        return Decision::Hold("its Secret holds no usable keys".to_owned());
    }
    if stored.ids.len() >= KEYS_MAX {
        let most = stored.ids.len();
        return Decision::Hold(format!(
            "its Secret holds {most} keys, and no more are taken; remove those that no process signs with"
        ));
    }
    Decision::Take(Step::Begin {
        request: request.to_owned(),
    })
}

// === impl Rotating ===

impl Rotating {
    /// How far the Secret is; nothing where its keys are not those that this rotation leaves.
    pub(super) fn stage(&self, ids: &[String]) -> Option<Stage> {
        let (new, old) = (&self.new, self.old.as_slice());
        if ids.split_last() == Some((new, old)) && !old.is_empty() {
            Some(Stage::Verify)
        } else if ids.split_first() == Some((new, old)) && !old.is_empty() {
            Some(Stage::Sign)
        } else if ids == [new.as_str()] {
            Some(Stage::Forget)
        } else {
            None
        }
    }

    /// What is to be waited for; nothing once every process has done what the stage asks.
    fn awaited(&self, stage: Stage, processes: &[Process]) -> Option<Decision> {
        let silent = processes
            .iter()
            .filter_map(|process| match &process.reported {
                Reported::Silent(why) => Some(format!("{} cannot be asked: {why}", process.name)),
                Reported::Keys(_) | Reported::Starting(_) => None,
            });
        if let Some(silent) = listed(silent) {
            let aim = stage.aim(&self.new);
            return Some(Decision::Hold(format!(
                "waits until all processes {aim}; {silent}"
            )));
        }
        let late = processes
            .iter()
            .filter_map(|process| match &process.reported {
                Reported::Keys(keys) => (!self.is_done(stage, keys)).then(|| process.name.clone()),
                Reported::Starting(why) => Some(format!("{} ({why})", process.name)),
                Reported::Silent(_) => None,
            });
        listed(late).map(|late| Decision::Wait(stage, format!("not yet: {late}")))
    }

    fn is_done(&self, stage: Stage, keys: &[(String, KeyUse)]) -> bool {
        let mut keys = keys.iter();
        match stage {
            Stage::Verify => keys.any(|(id, _)| *id == self.new),
            Stage::Sign => keys.any(|(id, key)| *id == self.new && *key == KeyUse::Signs),
            Stage::Forget => keys.all(|(id, _)| !self.old.contains(id)),
        }
    }
}

/// The first few of them; nothing where there are none.
fn listed(items: impl Iterator<Item = String>) -> Option<String> {
    let mut items: Vec<String> = items.collect();
    let more = items.len().saturating_sub(NAMED_MAX);
    items.truncate(NAMED_MAX);
    if more > 0 {
        items.push(format!("{more} more"));
    }
    (!items.is_empty()).then(|| items.join(", "))
}

#[cfg(test)]
impl Agreement {
    /// As if it had lasted for long.
    pub(super) fn age(&mut self) {
        self.since = self.since.checked_sub(SETTLED).expect("an old machine");
    }
}

// === impl Stage ===

impl Stage {
    /// What all processes are to do, in words.
    pub(crate) fn aim(self, new: &str) -> String {
        match self {
            Self::Verify => format!("verify with key {new} (step 1 of 3)"),
            Self::Sign => format!("sign with key {new} (step 2 of 3)"),
            Self::Forget => format!("have no key but {new} (step 3 of 3)"),
        }
    }
}

#[cfg(test)]
mod tests;
