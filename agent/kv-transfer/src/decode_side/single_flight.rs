//! One attempt for all who ask: rooms that need the same peer share one registration. What succeeded
//! is kept until it is forgotten; what failed is refused at once for a while, longer each time, so
//! that a peer that cannot be used costs its rooms nothing and is tried again after it recovers.

use crate::clock::Instant;
use crate::failure::FailureReason;
use crate::tasks::Tasks;
use parking_lot::Mutex;
use pd_protocol::Backoff;
use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How long a failure is kept: doubled with each, up to the maximum.
const BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(100), Duration::from_secs(1));
/// How long after its rest a failure still lengthens the next. Then it is forgotten, for its key, an address
/// that a request names, may never be asked for again.
const FAILURE_KEPT: Duration = Duration::from_secs(60);
/// Failures that are kept at once; beyond them the one whose rest ends first makes room.
const FAILURES_MAX: usize = 1024;

pub(crate) struct SingleFlight<K, V> {
    known: Arc<Mutex<HashMap<K, Attempt<V>>>>,
    tasks: Tasks,
}

enum Attempt<V> {
    Running(watch::Receiver<Option<Result<V, FailureReason>>>),
    Done(V),
    Failed {
        reason: FailureReason,
        until: Instant,
        times: u32,
    },
}

impl<K, V> SingleFlight<K, V>
where
    K: Clone + Eq + Hash + Send + 'static,
    V: Clone + Send + Sync + 'static,
{
    pub(crate) fn new(tasks: Tasks) -> Self {
        let known = Arc::default();
        Self { known, tasks }
    }

    /// What is known of `key`, or the result of `attempt`, which runs on when its last caller has left.
    pub(crate) async fn get<F>(&self, key: K, attempt: F) -> Result<V, FailureReason>
    where
        F: Future<Output = Result<V, FailureReason>> + Send + 'static,
    {
        let mut result = match self.lookup(key, attempt) {
            Ok(running) => running,
            Err(known) => return known,
        };
        let result = result.wait_for(Option::is_some).await;
        let ended = FailureReason::application("the manager is shutting down");
        result.map_or(Err(ended), |result| {
            result.clone().expect("waited until there is one")
        })
    }

    #[expect(
        clippy::type_complexity,
        reason = "a receiver, or what is known already"
    )]
    fn lookup<F>(
        &self,
        key: K,
        attempt: F,
    ) -> Result<watch::Receiver<Option<Result<V, FailureReason>>>, Result<V, FailureReason>>
    where
        F: Future<Output = Result<V, FailureReason>> + Send + 'static,
    {
        let mut known = self.known.lock();
        let times = match known.get(&key) {
            Some(Attempt::Done(value)) => return Err(Ok(value.clone())),
            Some(Attempt::Running(running)) => return Ok(running.clone()),
            Some(Attempt::Failed { reason, until, .. }) if Instant::now() < *until => {
                return Err(Err(reason.clone()));
            }
            Some(Attempt::Failed { times, .. }) => *times,
            None => 0,
        };
        let (result_tx, result_rx) = watch::channel(None);
        known.insert(key.clone(), Attempt::Running(result_rx.clone()));
        let table = Arc::clone(&self.known);
        self.tasks.spawn("registration", async move {
            let result = attempt.await;
            {
                let mut known = table.lock();
                match &result {
                    // Unless what it made was found unusable before its attempt had ended.
                    Ok(value) => {
                        if matches!(known.get(&key), Some(Attempt::Running(_))) {
                            known.insert(key, Attempt::Done(value.clone()));
                        }
                    }
                    Err(reason) => {
                        let times = times.saturating_add(1);
                        fail(&mut known, key, reason.clone(), times);
                    }
                }
            }
            let _ = result_tx.send(Some(result));
        });
        Ok(result_rx)
    }

    /// Forgets what succeeded: its peer is gone.
    pub(crate) fn forget(&self, key: &K) {
        let mut known = self.known.lock();
        if matches!(known.get(key), Some(Attempt::Done(_))) {
            known.remove(key);
        }
    }

    /// Forgets what succeeded and refuses it for a while: it cannot be used.
    pub(crate) fn blacklist(&self, key: K, reason: FailureReason) {
        fail(&mut self.known.lock(), key, reason, u32::MAX);
    }
}

/// Enters a failure, in place of those that are old or too many.
fn fail<K, V>(known: &mut HashMap<K, Attempt<V>>, key: K, reason: FailureReason, times: u32)
where
    K: Clone + Eq + Hash,
{
    let now = Instant::now();
    known.remove(&key);
    known.retain(|_, attempt| {
        attempt
            .rests_until()
            .is_none_or(|until| now < until + FAILURE_KEPT)
    });
    let failures = known
        .iter()
        .filter_map(|(key, attempt)| Some((attempt.rests_until()?, key)));
    if failures.clone().count() >= FAILURES_MAX {
        let first = failures.min_by_key(|(until, _)| *until);
        if let Some(first) = first.map(|(_, key)| key.clone()) {
            known.remove(&first);
        }
    }
    let failed = Attempt::Failed {
        reason,
        until: now + BACKOFF.delay(times.saturating_sub(1)),
        times,
    };
    known.insert(key, failed);
}

// === impl Attempt ===

impl<V> Attempt<V> {
    /// Of a failure.
    fn rests_until(&self) -> Option<Instant> {
        match self {
            Self::Failed { until, .. } => Some(*until),
            Self::Running(_) | Self::Done(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;
