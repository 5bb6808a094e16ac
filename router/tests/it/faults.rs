//! A failing leg ends the other at once; the request is tried elsewhere until its first byte, and
//! only the worker at fault pays.

use crate::client::Reply;
use crate::harness::{Pair, Running, config, serving};
use crate::mock::{Answer, Mock};
use http_body_util::BodyExt;
use pd_protocol::Role;

fn failing() -> Answer {
    Answer::Status(500, r#"{"error":{"message":"boom"}}"#.to_owned())
}

#[tokio::test]
async fn a_failing_prefill_ends_decode_and_the_request_goes_elsewhere() {
    let (bad, good) = (
        Mock::start(Role::Prefill).await,
        Mock::start(Role::Prefill).await,
    );
    let decode = Mock::start(Role::Decode).await;
    bad.answer(Answer::StatusWhenReleased(500, String::new()));
    // Decode waits for KV that never comes, as long as its caller waits.
    decode.answer_in_turn([Answer::Hang, Answer::Json("{}".to_owned())]);
    let flags = config("--policy round_robin");
    let running = Running::start(flags, &[&bad, &good, &decode]).await;
    let client = running.client.clone();
    let request = tokio::spawn(async move { client.post("/generate", "{}").await });
    decode.until(|counts| counts.live == 1).await;
    bad.release();
    assert_eq!(request.await.unwrap().status(), 200);
    assert_eq!((bad.counts().asked, good.counts().asked), (1, 1));
    decode.until(|counts| counts.live == 0).await;
    running.until_idle().await;
}

#[tokio::test]
async fn only_the_leg_that_failed_is_charged() {
    let flags = "--cb-failure-threshold 1 --retry-max-retries 0 --no-worker-timeout-secs 0";
    let pair = Pair::start(flags).await;
    pair.decode.answer(failing());
    let reply = pair.running.client.post("/generate", "{}").await;
    assert_eq!(
        (reply.status(), reply.json()["error"]["message"].as_str()),
        (500, Some("boom"))
    );
    let open = |mock: &Mock| pair.running.router.worker(&mock.id()).unwrap().circuit_open;
    assert!(open(&pair.decode));
    assert!(!open(&pair.prefill));
    let reply = pair.running.client.post("/generate", "{}").await;
    assert_eq!(reply.status(), 503);
    assert!(reply.error().contains("rests after failures"));
}

#[tokio::test(start_paused = false)]
async fn an_open_circuit_is_probed_by_one_request_at_a_time() {
    let flags = "--cb-failure-threshold 1 --cb-success-threshold 1 --cb-timeout-duration-secs 0 \
                 --retry-max-retries 0 --no-worker-timeout-secs 0";
    let pair = Pair::start(flags).await;
    pair.prefill.answer(failing());
    assert_eq!(
        pair.running.client.post("/generate", "{}").await.status(),
        500
    );
    pair.prefill.answer(Answer::Hang);
    pair.decode.answer(Answer::Hang);
    let client = pair.running.client.clone();
    let probe = tokio::spawn(async move { client.open("/generate", "{}").await });
    pair.prefill.until(|counts| counts.asked == 2).await;
    assert_eq!(
        pair.running.client.post("/generate", "{}").await.status(),
        503
    );
    probe.abort();
    pair.running.until_idle().await;
    for mock in [&pair.prefill, &pair.decode] {
        mock.answer(Answer::Json("{}".to_owned()));
    }
    assert_eq!(
        pair.running.client.post("/generate", "{}").await.status(),
        200
    );
    let open = || {
        pair.running
            .router
            .worker(&pair.prefill.id())
            .unwrap()
            .circuit_open
    };
    pair.running.until(|_| !open()).await;
}

#[tokio::test]
async fn the_clients_fault_is_passed_through_once_and_charged_to_no_worker() {
    let pair = Pair::start("--cb-failure-threshold 1").await;
    let refusal = r#"{"error":{"message":"too long","type":"t","param":null,"code":null}}"#;
    for worker in [&pair.prefill, &pair.decode] {
        worker.answer(Answer::Status(400, refusal.to_owned()));
    }
    for _ in 0..3 {
        let reply = pair.running.client.post("/generate", "{}").await;
        assert_eq!((reply.status(), reply.text()), (400, refusal));
    }
    assert_eq!(serving(&pair.running.router), 2);
    assert!(pair.prefill.counts().asked <= 3);
    assert!(pair.running.router.is_ready());
}

#[tokio::test]
async fn a_worker_that_is_full_is_passed_over_and_not_charged() {
    let (full, free) = (
        Mock::start(Role::Unified).await,
        Mock::start(Role::Unified).await,
    );
    full.answer(Answer::Status(503, "{\"error\":{}}".to_owned()));
    let flags = config("--policy round_robin --cb-failure-threshold 1");
    let running = Running::start(flags, &[&full, &free]).await;
    for _ in 0..4 {
        assert_eq!(running.client.post("/generate", "{}").await.status(), 200);
    }
    assert_eq!(full.counts().asked, 2);
    assert!(!running.router.worker(&full.id()).unwrap().circuit_open);
}

#[tokio::test]
async fn decode_without_its_peer_is_tried_with_another_peer() {
    let (lost, well) = (
        Mock::start(Role::Prefill).await,
        Mock::start(Role::Prefill).await,
    );
    let decode = Mock::start(Role::Decode).await;
    lost.answer(Answer::Hang);
    let running = Running::start(config(""), &[&lost, &well, &decode]).await;
    running.router.set_cordoned(&well.id(), true).unwrap();
    // The first attempt meets the lost worker; while it waits, the other comes back.
    decode.answer_in_turn([Answer::Hang, Answer::Json("{}".to_owned())]);
    let client = running.client.clone();
    let request = tokio::spawn(async move { client.post("/generate", "{}").await });
    decode.until(|counts| counts.asked == 1).await;
    request.abort();
    running.router.set_cordoned(&well.id(), false).unwrap();
    running.until_idle().await;

    let peer_failed = Answer::Status(
        503,
        "{\"error\":{\"message\":\"prefill is gone\"}}".to_owned(),
    );
    decode.answer_in_turn([peer_failed, Answer::Json("{}".to_owned())]);
    well.answer(Answer::Json("{}".to_owned()));
    assert_eq!(running.client.post("/generate", "{}").await.status(), 200);
}

#[tokio::test]
async fn an_error_at_the_head_of_a_stream_is_retried() {
    let worker = Mock::start(Role::Unified).await;
    let error = "data: {\"error\":{\"message\":\"no\",\"code\":503}}\n\n".to_owned();
    let whole = "data: {}\n\ndata: [DONE]\n\n".to_owned();
    worker.answer_in_turn([
        Answer::Events(vec![error]),
        Answer::Events(vec![whole.clone()]),
    ]);
    let running = Running::start(config(""), &[&worker]).await;
    let reply = running.client.post("/generate", r#"{"stream":true}"#).await;
    assert_eq!((reply.status(), reply.text()), (200, whole.as_str()));
}

#[tokio::test]
async fn prefill_failing_between_decodes_head_and_first_byte_is_retried() {
    let pair = Pair::start("").await;
    let whole = "data: {}\n\ndata: [DONE]\n\n".to_owned();
    let refused = Answer::StatusWhenReleased(500, String::new());
    pair.prefill
        .answer_in_turn([refused, Answer::Json("{}".to_owned())]);
    pair.decode.answer_in_turn([
        Answer::EventsThenHang(Vec::new()),
        Answer::Events(vec![whole.clone()]),
    ]);
    let client = pair.running.client.clone();
    let body = r#"{"stream":true}"#;
    let request = tokio::spawn(async move { client.post("/generate", body).await });
    pair.decode.until(|counts| counts.live == 1).await;
    pair.prefill.release();
    let reply = request.await.unwrap();
    assert_eq!((reply.status(), reply.text()), (200, whole.as_str()));
    pair.decode.until(|counts| counts.live == 0).await;
}

#[tokio::test]
async fn retries_end_with_the_last_failure() {
    let pair = Pair::start("--retry-max-retries 2").await;
    pair.prefill.answer(failing());
    pair.decode.answer(Answer::Hang);
    let reply = pair.running.client.post("/generate", "{}").await;
    assert_eq!(reply.status(), 500);
    assert_eq!(pair.prefill.counts().asked, 3);
    pair.decode.until(|counts| counts.live == 0).await;
    assert_eq!(pair.running.metric("pd_router_retries_total").await, 2.0);
}

#[tokio::test]
async fn a_stream_that_breaks_ends_with_an_error_event() {
    let pair = Pair::start("").await;
    let half = "data: {\"text\":\"a\"}\n\ndata: {\"te".to_owned();
    pair.decode
        .answer(Answer::EventsThenBreak(vec![half.clone()]));
    let asked = r#"{"stream":true}"#;
    let answer = pair.running.client.open("/generate", asked).await;
    pair.decode.release();
    let reply = Reply::read(answer).await;
    let rest = reply
        .text()
        .strip_prefix(&half)
        .expect("what came before is kept");
    let data = rest
        .strip_prefix("\n\nevent: error\ndata: ")
        .expect("an error event follows");
    let error: serde_json::Value = serde_json::from_str(data).unwrap();
    assert_eq!(error["error"]["code"], "broken_off");
    pair.running.until_idle().await;
    assert_eq!(
        pair.running
            .metric("pd_router_answers_total{outcome=\"broken\"}")
            .await,
        1.0
    );
}

#[tokio::test]
async fn prefill_failing_after_decode_began_does_not_cut_the_answer() {
    let pair = Pair::start("").await;
    pair.prefill
        .answer(Answer::EventsThenHang(vec!["data: {}\n\n".to_owned()]));
    pair.decode
        .answer(Answer::EventsThenHang(vec!["data: 1\n\n".to_owned()]));
    let mut body = pair
        .running
        .client
        .open("/generate", r#"{"stream":true}"#)
        .await
        .into_body();
    assert_eq!(
        body.frame().await.unwrap().unwrap().into_data().unwrap(),
        "data: 1\n\n"
    );
    pair.prefill.until(|counts| counts.asked == 1).await;
    pair.prefill.stop();
    assert_eq!(pair.decode.counts().live, 1);
}

/// Probes that find a frozen worker within a moment.
const QUICK_PROBES: &str = "--health-check-interval-secs 1 --health-check-timeout-secs 1 \
                            --health-failure-threshold 1 --retry-max-retries 0";

#[tokio::test]
async fn a_stream_from_a_frozen_worker_ends_with_an_error_event() {
    let pair = Pair::start(QUICK_PROBES).await;
    let event = "data: {\"text\":\"a\"}\n\n";
    pair.decode
        .answer(Answer::EventsThenHang(vec![event.to_owned()]));
    let stream = pair.running.client.open("/generate", r#"{"stream":true}"#);
    let mut body = stream.await.into_body();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(first, event);
    pair.decode.freeze();
    let rest = body.collect().await.unwrap().to_bytes();
    let rest = String::from_utf8_lossy(&rest);
    assert!(rest.contains("it answers no probe"), "{rest}");
    pair.running.until_idle().await;
}

#[tokio::test]
async fn a_request_that_waits_for_a_frozen_worker_ends() {
    for role in [Role::Prefill, Role::Decode] {
        let pair = Pair::start(QUICK_PROBES).await;
        pair.decode.answer(Answer::Hang);
        pair.prefill.answer(Answer::Hang);
        let client = pair.running.client.clone();
        let request = tokio::spawn(async move { client.post("/generate", "{}").await });
        pair.decode.until(|counts| counts.live == 1).await;
        match role {
            Role::Prefill => pair.prefill.freeze(),
            Role::Decode | Role::Unified => pair.decode.freeze(),
        }
        let reply = request.await.unwrap();
        assert_eq!(reply.status(), 502, "{}", reply.text());
        let named = format!("the {role} worker");
        assert!(reply.error().contains(&named), "{}", reply.text());
        pair.running.until_idle().await;
    }
}

#[tokio::test]
async fn a_stream_that_stands_still_ends_at_its_requests_deadline() {
    let pair = Pair::start("--request-timeout-secs 1").await;
    let event = "data: {\"text\":\"a\"}\n\n";
    pair.decode
        .answer(Answer::EventsThenHang(vec![event.to_owned()]));
    let stream = pair.running.client.open("/generate", r#"{"stream":true}"#);
    let body = stream.await.into_body().collect().await.unwrap();
    let said = String::from_utf8_lossy(&body.to_bytes()).into_owned();
    let rest = said.strip_prefix(event).unwrap();
    assert!(rest.contains("--request-timeout-secs"), "{rest}");
    pair.running.until_idle().await;
}
