//! What must hold under every fault.

use crate::client::{Ask, Outcome};
use crate::plan::Plan;
use crate::software;
use pd_engine::engine::EngineHandle;
use pd_router::Router;
use std::collections::BTreeMap;
use std::time::Duration;

/// While it runs: no queue is longer than its bound.
pub(crate) fn bounded(router: &Router, plan: &Plan, now: Duration) -> Result<(), String> {
    let (in_flight, waiting) = (router.in_flight(), router.waiting());
    let most = plan.in_flight_max.unwrap_or(usize::MAX);
    if in_flight > most || waiting > plan.queue_size {
        let room = plan.queue_size;
        return Err(format!(
            "at {now:?} {in_flight} of {most} requests are in flight and {waiting} of {room} wait"
        ));
    }
    Ok(())
}

/// The same as clients see it: one request more than all bounds allow is refused soon.
#[derive(Debug, Default)]
pub(crate) struct Bounds {
    looked_at: Duration,
}

/// How long a request may be unknown to the router, or its answer to the client.
const KNOWN_WITHIN: Duration = Duration::from_secs(5);
const BOUNDS_INTERVAL: Duration = Duration::from_millis(500);

// === impl Bounds ===

impl Bounds {
    pub(crate) fn hold(
        &mut self,
        plan: &Plan,
        answers: &[(usize, Duration, Outcome)],
        now: Duration,
    ) -> Result<(), String> {
        let Some(in_flight_max) = plan.in_flight_max else {
            return Ok(());
        };
        if plan.hurts_router() || now < self.looked_at + BOUNDS_INTERVAL {
            return Ok(());
        }
        self.looked_at = now;
        let has_ended = |ask: &Ask| answers.iter().any(|(nr, ..)| *nr == ask.nr);
        let is_known = |ask: &&Ask| {
            ask.at + KNOWN_WITHIN < now && ask.read_pause.is_zero() && !plan.misses_router(ask)
        };
        let asks = plan.asks.iter().filter(is_known);
        let open = asks.filter(|ask| !has_ended(ask)).count();
        let most = in_flight_max + plan.queue_size;
        if open > most {
            return Err(format!(
                "at {now:?} {open} requests have no answer, of at most {most}"
            ));
        }
        Ok(())
    }
}

/// The router knows each worker's present process.
pub(crate) fn knows(router: &Router, boot_ids: &BTreeMap<usize, String>) -> Result<(), String> {
    for worker in router.workers() {
        let boot_id = boot_ids.get(&software::nr_of(&worker.spec.url));
        if worker.boot_id.as_ref() != boot_id {
            let (id, known) = (worker.spec.id, worker.boot_id);
            return Err(format!("{id} is {boot_id:?}, and known as {known:?}"));
        }
    }
    Ok(())
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
    let (free, all) = router.permits();
    if free != all {
        return Err(format!("at rest {free} of {all} permits are free"));
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
    let is_hurt = plan.hurts_router() || plan.misses_router(ask);
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
