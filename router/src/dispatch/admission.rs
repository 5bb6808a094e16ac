//! How an attempt comes to a permit and to workers, which `route` chooses. Where a pool has no worker
//! for a moment (a restart, a rollout, a scale from zero) the request waits in the queue, within the
//! queue's bounds, and holds no permit meanwhile.

use super::failure::LegFailure;
use crate::clock::sleep;
use crate::error::ApiError;
use crate::queue::{AdmissionPermit, QueueError, WaitBudget};
use crate::route::{Demand, NoRoute, Route};
use crate::router::Router;
use crate::workers::Fleet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// An open circuit ends with time, which the fleet does not announce.
const CIRCUIT_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Why a request is not taken on.
#[derive(Debug)]
pub(super) enum Refusal {
    Queue(QueueError),
    Route(NoRoute),
}

/// Acquires a permit, if none is `held`, and workers for what `demand` says.
pub(super) async fn admit<'a>(
    router: &Router,
    held: Option<AdmissionPermit>,
    demand: impl Fn() -> Demand<'a>,
    budget: &mut WaitBudget,
) -> Result<(AdmissionPermit, Route), Refusal> {
    let mut missing = match held.or_else(|| router.try_acquire()) {
        Some(permit) => match router.choose(&demand()) {
            Ok(route) => return Ok((permit, route)),
            Err(no_route) => Some(awaited(router, no_route, budget)?),
        },
        None => None,
    };
    let _waiting = router
        .queue
        .count_waiting()
        .map_err(|full| match missing.take() {
            Some(no_route) => Refusal::Route(no_route),
            None => Refusal::Queue(full),
        })?;
    // What changes from here on is seen as a change.
    let mut fleet = router.registry.changes();
    loop {
        let permit = budget.for_permit(acquire(router, &mut fleet)).await?;
        let no_route = match router.choose(&demand()) {
            Ok(route) => return Ok((permit, route)),
            Err(no_route) => awaited(router, no_route, budget)?,
        };
        drop((permit, no_route));
        let sign = async {
            tokio::select! {
                _ = fleet.changed() => {}
                () = router.draining.cancelled() => {}
                () = sleep(CIRCUIT_POLL_INTERVAL) => {}
            }
        };
        budget.for_worker(sign).await;
    }
}

/// What is missing, if it is worth waiting for.
fn awaited(router: &Router, missing: NoRoute, budget: &WaitBudget) -> Result<NoRoute, Refusal> {
    match missing {
        NoRoute::NoWorker(_) if budget.awaits_workers() && !router.is_draining() => Ok(missing),
        NoRoute::NoWorker(_) | NoRoute::UnknownModel { .. } => Err(Refusal::Route(missing)),
    }
}

/// Waits for a permit, also for one that the fleet's growth makes.
async fn acquire(router: &Router, fleet: &mut watch::Receiver<Arc<Fleet>>) -> AdmissionPermit {
    let permit = router.queue.acquire();
    tokio::pin!(permit);
    loop {
        tokio::select! {
            permit = &mut permit => return permit,
            _ = fleet.changed() => router.resize_queue(),
        }
    }
}

// === impl Refusal ===

impl Refusal {
    /// The same for a request whose last attempt failed.
    pub(super) fn after(self, last: Option<&LegFailure>) -> Self {
        match (self, last) {
            (Self::Route(NoRoute::NoWorker(missing)), Some(last)) => {
                let missing = format!("{missing}; the last attempt: {last}");
                Self::Route(NoRoute::NoWorker(missing))
            }
            (refusal, _) => refusal,
        }
    }
}

impl From<QueueError> for Refusal {
    fn from(error: QueueError) -> Self {
        Self::Queue(error)
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Queue(error) => error.into(),
            Refusal::Route(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests;
