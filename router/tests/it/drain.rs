//! A stopping router finishes what it has begun.

use crate::client::Reply;
use crate::harness::Pair;
use crate::mock::Answer;
use http_body_util::BodyExt;
use pd_router::Stopped;
use tokio::net::TcpStream;

#[tokio::test]
async fn an_idle_router_stops_at_once() {
    let mut pair = Pair::start("").await;
    pair.running.client.post("/generate", "{}").await;
    pair.running.stop();
    assert_eq!(pair.running.stopped().await, Ok(Stopped::Drained));
}

#[tokio::test]
async fn answers_in_flight_are_finished_and_no_connection_is_taken() {
    let mut pair = Pair::start("").await;
    pair.decode
        .answer(Answer::EventsThenHang(vec!["data: {}\n\n".to_owned()]));
    let answer = pair
        .running
        .client
        .open("/generate", r#"{"stream":true}"#)
        .await;
    let mut body = answer.into_body();
    pair.running.stop();
    pair.running.until(|router| router.is_draining()).await;
    assert!(!pair.running.router.is_ready());
    while TcpStream::connect(pair.running.api_addr).await.is_ok() {}
    assert_eq!(
        body.frame().await.unwrap().unwrap().into_data().unwrap(),
        "data: {}\n\n"
    );
    assert_eq!(pair.decode.counts().live, 1);
    drop(body);
    assert_eq!(pair.running.stopped().await, Ok(Stopped::Drained));
}

#[tokio::test]
async fn the_grace_period_ends_what_does_not_end_itself() {
    let mut pair = Pair::start("--shutdown-grace-period-secs 0").await;
    pair.decode
        .answer(Answer::EventsThenHang(vec!["data: {}\n\n".to_owned()]));
    let answer = pair
        .running
        .client
        .open("/generate", r#"{"stream":true}"#)
        .await;
    pair.running.stop();
    assert_eq!(pair.running.stopped().await, Ok(Stopped::CutOff));
    drop(answer);
}

#[tokio::test]
async fn a_router_that_loses_a_task_finishes_its_answers_and_ends_with_the_reason() {
    let pair = Pair::start("--shutdown-delay-secs 3600").await;
    pair.decode
        .answer(Answer::EventsThenBreak(vec!["data: {}\n\n".to_owned()]));
    let body = r#"{"stream":true}"#;
    let answer = pair.running.client.open("/generate", body).await;
    let router = &pair.running.router;
    router.spawn("probes of a worker", async { panic!("on purpose") });
    pair.running.until(|router| router.is_draining()).await;
    pair.decode.release();
    assert!(Reply::read(answer).await.text().contains("broken_off"));
    let lost = pair.running.stopped().await.unwrap_err();
    assert!(lost.contains("probes of a worker"), "{lost}");
    assert!(lost.contains("on purpose"), "{lost}");
}
