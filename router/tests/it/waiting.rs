//! A pool without a ready worker for a moment costs time, and no request.

use crate::client::Reply;
use crate::harness::{Pair, Running, config, serving};
use crate::mock::{Answer, Mock};
use pd_protocol::Role;
use pd_router::Stopped;
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

fn ask(running: &Running, count: usize) -> Vec<JoinHandle<Reply>> {
    let ask = || {
        let client = running.client.clone();
        tokio::spawn(async move { client.post("/generate", r#"{"model":"m"}"#).await })
    };
    (0..count).map(|_| ask()).collect()
}

async fn assert_answered(asked: Vec<JoinHandle<Reply>>) {
    for reply in asked {
        let reply = reply.await.unwrap();
        assert_eq!(reply.status(), 200, "{}", reply.text());
    }
}

#[tokio::test]
async fn all_workers_deleted_at_once_fail_no_request() {
    let pair = Pair::start("").await;
    for gone in [&pair.decode, &pair.prefill] {
        pair.running.router.remove_worker(&gone.id()).unwrap();
    }
    let asked = ask(&pair.running, 8);
    pair.running.until(|router| router.waiting() == 8).await;
    let waiting = pair.running.metric("pd_router_queue_waiting").await;
    let in_flight = pair.running.metric("pd_router_in_flight").await;
    assert_eq!((waiting, in_flight), (8.0, 0.0));
    for successor in [&pair.prefill, &pair.decode] {
        pair.running.router.add_worker(successor.spec()).unwrap();
    }
    assert_answered(asked).await;
    assert_eq!(pair.running.metric("pd_router_queue_waiting").await, 0.0);
}

#[tokio::test]
async fn a_decode_that_restarts_fails_no_request() {
    let pair = Pair::start("").await;
    let addr = pair.decode.addr;
    pair.decode.stop();
    drop(pair.decode);
    let asked = ask(&pair.running, 16);
    pair.running
        .until(|router| serving(router) == 1 && router.waiting() == 16)
        .await;
    let successor = Mock::start_at(Role::Decode, addr).await;
    successor.set_info("boot_id", json!("boot-2"));
    assert_answered(asked).await;
    assert_eq!(successor.counts().asked, 16);
}

#[tokio::test]
async fn a_wait_that_ends_names_what_is_missing_and_the_last_attempt() {
    let pair = Pair::start("--no-worker-timeout-secs 1").await;
    pair.decode.stop();
    let reply = pair.running.client.post("/generate", "{}").await;
    assert_eq!(reply.status(), 503);
    assert_eq!(reply.headers()["retry-after"], "1");
    let message = reply.error();
    assert!(message.contains("no decode worker is ready"), "{message}");
    assert!(
        message.contains("the last attempt: the decode worker"),
        "{message}"
    );
    assert_eq!(reply.json()["error"]["code"], "no_worker");
}

#[tokio::test]
async fn a_router_that_stops_leaves_no_client_waiting() {
    let mut running = Running::start(config(""), &[]).await;
    let asked = ask(&running, 1);
    running.until(|router| router.waiting() == 1).await;
    running.stop();
    for reply in asked {
        assert_eq!(reply.await.unwrap().status(), 503);
    }
    assert_eq!(running.stopped().await, Ok(Stopped::Drained));
}

#[tokio::test]
async fn a_known_model_is_unready_and_another_unknown() {
    let (here, away) = (
        Mock::start(Role::Unified).await,
        Mock::start(Role::Unified).await,
    );
    away.set_info("served_model_name", json!("away"));
    let flags = config("--no-worker-timeout-secs 0 --health-failure-threshold 1");
    let running = Running::start(flags, &[&here, &away]).await;
    away.stop();
    let body = r#"{"model":"away"}"#;
    let reply = running.client.post("/generate", body).await;
    assert_eq!(reply.status(), 503, "{}", reply.text());
    running.until(|router| serving(router) == 1).await;
    assert_eq!(running.client.post("/generate", body).await.status(), 503);
    assert_eq!(running.client.get("/v1/models/away").await.status(), 503);
    running.router.remove_worker(&away.id()).unwrap();
    let reply = running.client.post("/generate", body).await;
    assert_eq!(reply.status(), 404);
    assert!(reply.error().contains("served are: m"));
}

#[tokio::test]
async fn the_bound_is_what_the_workers_run_and_follows_them() {
    let pair = Pair::start("").await;
    let bound = "pd_router_in_flight_max";
    // Mocks say nothing of it.
    assert_eq!(pair.running.metric(bound).await, 1024.0);
    let second = Mock::start(Role::Decode).await;
    second.set_info("max_running_requests", json!(32));
    pair.running.router.add_worker(second.spec()).unwrap();
    pair.running.until(|router| serving(router) == 3).await;
    assert_eq!(pair.running.metric(bound).await, 1024.0 + 128.0);
    pair.running
        .router
        .set_cordoned(&pair.decode.id(), true)
        .unwrap();
    assert_eq!(pair.running.metric(bound).await, 128.0);
    pair.running.router.remove_worker(&second.id()).unwrap();
    assert_eq!(pair.running.metric(bound).await, -1.0);
}

#[tokio::test]
async fn requests_in_flight_are_counted_from_their_place_on() {
    let pair = Pair::start("").await;
    pair.decode.answer(Answer::Hang);
    let asked = ask(&pair.running, 1);
    pair.decode.until(|counts| counts.live == 1).await;
    assert_eq!(pair.running.metric("pd_router_in_flight").await, 1.0);
    asked[0].abort();
    pair.running.until(|router| router.in_flight() == 0).await;
}

#[tokio::test]
async fn a_pause_holds_requests_back_and_fails_none() {
    let pair = Pair::start("").await;
    let (router, client) = (&pair.running.router, &pair.running.client);
    assert_eq!(client.post("/generate", "{}").await.status(), 200);
    let paused = router.pause(Duration::from_secs(60));
    assert_eq!((paused.in_flight, paused.waiting), (0, 0));
    assert!(paused.paused_ms.is_some());
    let asked = ask(&pair.running, 8);
    pair.running.until(|router| router.waiting() == 8).await;
    assert_eq!(pair.decode.counts().asked, 1);
    assert!(router.dispatch_status().paused_ms >= paused.paused_ms);
    assert_eq!(router.resume().paused_ms, None);
    assert_answered(asked).await;
    assert_eq!(pair.decode.counts().asked, 9);
}

#[tokio::test]
async fn a_pause_ends_by_itself_unless_it_is_renewed() {
    let pair = Pair::start("").await;
    let router = &pair.running.router;
    router.pause(Duration::from_secs(60));
    let asked = ask(&pair.running, 1);
    pair.running.until(|router| router.waiting() == 1).await;
    router.pause(Duration::from_millis(50));
    router.pause(Duration::from_millis(60_000));
    router.resume();
    router.pause(Duration::from_millis(200));
    let begun = Instant::now();
    assert_answered(asked).await;
    let later = ask(&pair.running, 1);
    assert_answered(later).await;
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert_eq!(router.dispatch_status().paused_ms, None);
}

#[tokio::test]
async fn a_pause_lets_what_is_in_flight_end() {
    let pair = Pair::start("").await;
    let last = Answer::StatusWhenReleased(200, "{}".to_owned());
    pair.decode.answer(last);
    let router = &pair.running.router;
    let asked = ask(&pair.running, 1);
    pair.running.until(|router| router.in_flight() == 1).await;
    assert_eq!(router.pause(Duration::from_secs(60)).in_flight, 1);
    pair.decode.until(|counts| counts.asked == 1).await;
    pair.decode.release();
    assert_answered(asked).await;
    pair.running.until(|router| router.in_flight() == 0).await;
    let status = router.resume();
    assert_eq!((status.paused_ms, status.in_flight), (None, 0));
}
