//! What must hold under every fault.

use crate::client::{Ask, Outcome};
use crate::faults::Places;
use crate::plan::Plan;
use crate::world::World;
use pd_engine::engine::EngineHandle;
use pd_router::Router;
use std::time::Duration;

/// While it runs: no queue is longer than its bound.
pub(crate) fn bounded(router: &Router, plan: &Plan, now: Duration) -> Result<(), String> {
    let (in_flight, waiting) = (router.in_flight(), router.waiting());
    if in_flight > plan.in_flight_max || waiting > plan.queue_size {
        let (most, room) = (plan.in_flight_max, plan.queue_size);
        return Err(format!(
            "at {now:?} {in_flight} of {most} requests are in flight and {waiting} of {room} wait"
        ));
    }
    Ok(())
}

/// Health is true within its bound: soon after a pool is lost, the router reports that it cannot serve.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// Since when a pool has no worker that the router reaches, while the router itself runs.
    lost_since: Option<Duration>,
}

// === impl Health ===

impl Health {
    pub(crate) fn look(&mut self, world: &World, places: &Places) {
        let runs = world.reaches(places.router, places.router);
        let pools = [&places.prefills, &places.decodes];
        let is_lost = pools.into_iter().any(|pool| {
            let mut reached = pool.iter().map(|host| world.reaches(places.router, *host));
            !reached.any(|reached| reached)
        });
        if runs && is_lost {
            self.lost_since.get_or_insert(world.now);
        } else {
            self.lost_since = None;
        }
    }

    pub(crate) fn is_truth(
        &self,
        router: &Router,
        plan: &Plan,
        now: Duration,
    ) -> Result<(), String> {
        let limit = plan.probes.lost_within();
        let lost = self.lost_since.map(|since| now - since);
        match lost.filter(|lost| *lost > limit && router.is_routable()) {
            Some(lost) => Err(format!(
                "a pool is lost for {lost:?}, and the router is ready"
            )),
            None => Ok(()),
        }
    }
}

/// When everything has been well for a while: nothing is held, and every worker serves.
pub(crate) fn at_rest(router: &Router) -> Result<(), String> {
    let held = (router.in_flight(), router.waiting(), router.with_rooms());
    if held != (0, 0, 0) {
        return Err(format!(
            "at rest {} requests are in flight, {} wait, {} hold rooms",
            held.0, held.1, held.2
        ));
    }
    for worker in router.workers() {
        if worker.in_flight != 0 {
            let (id, count) = (&worker.spec.id, worker.in_flight);
            return Err(format!("at rest {id} has {count} requests"));
        }
    }
    if !router.is_ready() {
        let reasons: Vec<_> = router.workers().into_iter().map(|w| w.reason).collect();
        return Err(format!(
            "all workers are well, and the router is not ready: {reasons:?}"
        ));
    }
    Ok(())
}

/// Gauges of an engine that are 0 at rest.
const AT_REST: [&str; 8] = [
    r#"pdserve_kv_pages{state="held"}"#,
    r#"pdserve_kv_pages{state="locked"}"#,
    r#"pdserve_kv_pages{state="quarantined"}"#,
    "pdserve_req_pool_rows_used",
    "pdserve_metadata_rows_used",
    "pdserve_num_running_reqs",
    "pdserve_num_queue_reqs",
    "pdserve_rooms_in_flight",
];

/// Pages, slots, rooms and rows have returned.
pub(crate) fn engine_at_rest(engine: &EngineHandle) -> Result<(), String> {
    let role = engine.info().role;
    engine.health().map_err(|why| format!("{role}: {why}"))?;
    let in_flight = engine.drain_status().in_flight;
    if in_flight > 0 {
        return Err(format!(
            "at rest {in_flight} requests are in flight on {role}"
        ));
    }
    let text = engine.metrics().encode();
    for name in AT_REST {
        let mut lines = text.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        if value.is_some_and(|value| value != "0") {
            return Err(format!(
                "at rest {name} is {} on {role}",
                value.unwrap_or_default()
            ));
        }
    }
    Ok(())
}

/// Every request ended once, with its own tokens or with a reason.
pub(crate) fn ended(plan: &Plan, answers: &[(usize, Duration, Outcome)]) -> Result<(), String> {
    for ask in &plan.asks {
        let mut of_ask = answers.iter().filter(|(nr, ..)| *nr == ask.nr);
        let (Some((_, at, outcome)), None) = (of_ask.next(), of_ask.next()) else {
            let count = answers.iter().filter(|(nr, ..)| *nr == ask.nr).count();
            return Err(format!("request {} ended {count} times", ask.nr));
        };
        ended_well(plan, ask, outcome)
            .map_err(|why| format!("request {} at {at:?}: {why}", ask.nr))?;
    }
    Ok(())
}

/// Every request at the end got its tokens.
pub(crate) fn answered(plan: &Plan, answers: &[(usize, Duration, Outcome)]) -> Result<(), String> {
    for ask in &plan.late_asks {
        let of_ask = answers.iter().find(|(nr, ..)| *nr == ask.nr);
        let outcome = of_ask.map(|(.., outcome)| outcome);
        if outcome != Some(&Outcome::Tokens(ask.expected.clone())) {
            let nr = ask.nr;
            return Err(format!(
                "all is well, and request {nr} ended with {outcome:?}"
            ));
        }
    }
    Ok(())
}

fn ended_well(plan: &Plan, ask: &Ask, outcome: &Outcome) -> Result<(), String> {
    let is_hurt = plan.hurts_router();
    match outcome {
        Outcome::Tokens(tokens) if *tokens == ask.expected => Ok(()),
        Outcome::Tokens(tokens) => Err(format!(
            "wrong tokens {tokens:?} instead of {:?}",
            ask.expected
        )),
        Outcome::Refused(status, message) => {
            let is_ours = matches!(status, 429 | 500 | 502 | 503 | 504);
            if is_ours && !message.is_empty() {
                Ok(())
            } else {
                Err(format!("answered {status} {message:?}"))
            }
        }
        Outcome::Failed(message) if !message.is_empty() => Ok(()),
        Outcome::Failed(_) => Err("a stream failed without a reason".to_owned()),
        // An answer that is no stream has no place for a reason once it has begun.
        Outcome::Broken(_) if is_hurt || !ask.streams && !plan.faults.is_empty() => Ok(()),
        Outcome::Broken(error) => Err(format!("its connection broke: {error}")),
        Outcome::Left if ask.leaves_after.is_some() => Ok(()),
        Outcome::Left => Err("it left".to_owned()),
        Outcome::Hung if is_hurt => Ok(()),
        Outcome::Hung => Err("it hung".to_owned()),
    }
}
