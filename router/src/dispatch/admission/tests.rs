//! How long requests wait, and for what. No worker here is ever asked.

use super::*;
use crate::api_keys::ApiKeys;
use crate::args::Args;
use crate::error::ApiError;
use crate::vitals::Vitals;
use crate::workers::Worker;
use crate::workers::info::WorkerInfo;
use crate::workers::registry::Registered;
use axum::response::IntoResponse;
use clap::Parser;
use futures_util::FutureExt;
use pd_identity::Peers;
use pd_protocol::Role;
use pd_protocol::workers::WorkerSpec;
use tokio::time::Instant;

fn router(flags: &str) -> Arc<Router> {
    let line = format!("pd-router {flags}");
    let config = Args::parse_from(line.split_whitespace()).into_config();
    let config = config.expect("good flags");
    let vitals = Vitals::default();
    let metrics = Arc::default();
    let keys = ApiKeys::open(&config.api_keys, &metrics, &vitals).expect("no keys");
    Router::new(&config, keys, metrics, vitals, Peers::Plain, None)
}

fn add(router: &Router, id: &str, role: Role) -> Arc<Worker> {
    let spec = WorkerSpec {
        id: id.to_owned(),
        role,
        url: "http://127.3.0.1:30000".to_owned(),
        bootstrap_host: None,
        bootstrap_port: None,
        given_kv_compat: None,
    };
    let Ok(Registered::New(worker)) = router.registry.register(spec) else {
        panic!("{id} is new");
    };
    let info = WorkerInfo {
        models: vec!["m".to_owned()],
        ..WorkerInfo::default()
    };
    router.registry.set_ready(&worker, info);
    worker
}

fn demand<'a>(model: Option<&'a str>, excluded: &'a [Arc<Worker>]) -> Demand<'a> {
    Demand {
        model,
        prompt_tokens: 1,
        output_tokens: 1,
        excluded,
        now: Instant::now(),
    }
}

async fn admitted(router: &Router) -> Result<(AdmissionPermit, Route), Refusal> {
    let mut budget = router.queue.budget();
    admit(router, None, || demand(None, &[]), &mut budget).await
}

fn missing(refused: Result<(AdmissionPermit, Route), Refusal>) -> String {
    match refused {
        Err(Refusal::Route(NoRoute::NoWorker(missing))) => missing,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_worker_ends_with_what_is_missing() {
    for (flags, secs) in [
        ("", 10),
        ("--no-worker-timeout-secs 3", 3),
        ("--no-worker-timeout-secs 90 --queue-timeout-secs 4", 4),
        ("--no-worker-timeout-secs 0", 0),
        ("--queue-size 0", 0),
    ] {
        let router = router(flags);
        add(&router, "p", Role::Prefill);
        let begun = Instant::now();
        let missing = missing(admitted(&router).await);
        assert_eq!(missing, "no decode worker is ready", "{flags}");
        assert_eq!(begun.elapsed().as_secs(), secs, "{flags}");
        assert_eq!((router.queue.waiting(), router.queue.in_flight()), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_comes_ends_the_wait_at_once() {
    let router = router("--max-concurrent-requests 1");
    let mut waiting = Box::pin(admitted(&router));
    assert!(waiting.as_mut().now_or_never().is_none());
    assert_eq!((router.queue.waiting(), router.queue.in_flight()), (1, 0));
    let begun = Instant::now();
    add(&router, "n", Role::Unified);
    let (_permit, route) = waiting.await.expect("a worker is there");
    assert!(matches!(route, Route::Unified(_)));
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert_eq!((router.queue.waiting(), router.queue.in_flight()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_and_a_router_that_drains_wait_no_longer() {
    let router = router("--queue-size 1");
    let mut left = Box::pin(admitted(&router));
    assert!(left.as_mut().now_or_never().is_none());
    drop(left);
    assert_eq!(router.queue.waiting(), 0);

    let mut waiting = Box::pin(admitted(&router));
    assert!(waiting.as_mut().now_or_never().is_none());
    let begun = Instant::now();
    router.begin_draining();
    assert_eq!(missing(waiting.await), "no worker is ready");
    assert_eq!(missing(admitted(&router).await), "no worker is ready");
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_circuit_that_opens_again_within_the_bound_is_waited_for() {
    let router = router("--cb-failure-threshold 1 --cb-timeout-duration-secs 5");
    let worker = add(&router, "n", Role::Unified);
    let lease = worker.lease(1, Instant::now()).expect("admitted");
    lease.fail(Instant::now());
    let begun = Instant::now();
    assert!(admitted(&router).await.is_ok());
    assert_eq!(begun.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_reached_no_worker_is_repeated_when_a_probe_has() {
    let router = router("");
    let worker = add(&router, "n", Role::Unified);
    let lease = worker.lease(1, Instant::now()).expect("admitted");
    lease.fail_unreached(Instant::now());
    let excluded = [Arc::clone(&worker)];
    let mut budget = router.queue.budget();
    let demand = || demand(None, &excluded);
    let mut again = Box::pin(admit(&router, None, demand, &mut budget));
    assert!(again.as_mut().now_or_never().is_none());
    router.registry.clear_suspicion(&worker);
    assert!(again.now_or_never().expect("woken").is_ok());
    assert!(admitted(&router).await.is_ok(), "and others need not wait");
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_permit_ends_with_429() {
    let router = router("--max-concurrent-requests 1 --queue-timeout-secs 7");
    add(&router, "n", Role::Unified);
    let _held = admitted(&router).await.expect("free");
    let begun = Instant::now();
    let Err(Refusal::Queue(refused)) = admitted(&router).await else {
        panic!("there is one permit");
    };
    assert_eq!(begun.elapsed().as_secs(), 7);
    assert_eq!(ApiError::from(refused).into_response().status(), 429);
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_the_fleet_brings_is_acquired() {
    let router = router("");
    let worker = add(&router, "n", Role::Unified);
    let info = |running| WorkerInfo {
        models: vec!["m".to_owned()],
        max_running_requests: Some(running),
        ..WorkerInfo::default()
    };
    router.registry.set_ready(&worker, info(1));
    let mut held = Vec::new();
    while let Some(admitted) = admitted(&router).now_or_never() {
        held.push(admitted.expect("a permit"));
    }
    assert_eq!(held.len(), 4);
    let mut waiting = Box::pin(admitted(&router));
    assert!(waiting.as_mut().now_or_never().is_none());
    router.registry.set_ready(&worker, info(2));
    assert!(waiting.now_or_never().expect("woken").is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_unknown_model_is_not_waited_for() {
    let router = router("");
    add(&router, "p", Role::Prefill);
    let mut budget = router.queue.budget();
    let unknown = admit(&router, None, || demand(Some("x"), &[]), &mut budget);
    let refused = unknown.now_or_never().expect("at once");
    let is_unknown = matches!(refused, Err(Refusal::Route(NoRoute::UnknownModel { .. })));
    assert!(is_unknown, "{refused:?}");
}
