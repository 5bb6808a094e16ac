//! A client that leaves ends both legs at once, at any point.

use crate::harness::Pair;
use crate::mock::Answer;
use http_body_util::BodyExt;

/// Both workers are released and nothing is held.
async fn assert_released(pair: &Pair) {
    for worker in [&pair.prefill, &pair.decode] {
        worker.until(|counts| counts.live == 0).await;
    }
    pair.running.until_idle().await;
}

#[tokio::test]
async fn before_any_worker_has_answered() {
    let pair = Pair::start("").await;
    pair.prefill.answer(Answer::Hang);
    pair.decode.answer(Answer::Hang);
    let client = pair.running.client.clone();
    let request = tokio::spawn(async move { client.open("/generate", "{}").await });
    for worker in [&pair.prefill, &pair.decode] {
        worker.until(|counts| counts.live == 1).await;
    }
    request.abort();
    assert_released(&pair).await;
}

#[tokio::test]
async fn after_prefill_and_before_decodes_first_byte() {
    let pair = Pair::start("").await;
    pair.decode.answer(Answer::EventsThenHang(Vec::new()));
    let client = pair.running.client.clone();
    let body = r#"{"stream":true}"#;
    let request = tokio::spawn(async move { client.open("/generate", body).await });
    pair.decode.until(|counts| counts.live == 1).await;
    pair.prefill.until(|counts| counts.asked == 1).await;
    request.abort();
    assert_released(&pair).await;
}

#[tokio::test]
async fn in_the_middle_of_the_stream() {
    let pair = Pair::start("").await;
    pair.prefill.answer(Answer::EventsThenHang(Vec::new()));
    pair.decode
        .answer(Answer::EventsThenHang(vec!["data: {}\n\n".to_owned()]));
    let answer = pair
        .running
        .client
        .open("/generate", r#"{"stream":true}"#)
        .await;
    let mut body = answer.into_body();
    assert!(body.frame().await.unwrap().is_ok());
    assert_eq!(pair.decode.counts().live, 1);
    drop(body);
    assert_released(&pair).await;
    let cancelled = "pd_router_answers_total{outcome=\"cancelled\"}";
    assert_eq!(pair.running.metric(cancelled).await, 1.0);
}

#[tokio::test]
async fn while_it_waits_in_the_queue() {
    let pair = Pair::start("--max-concurrent-requests 1").await;
    pair.decode.answer(Answer::Hang);
    pair.prefill.answer(Answer::Hang);
    let client = pair.running.client.clone();
    let first = tokio::spawn(async move { client.open("/generate", "{}").await });
    pair.decode.until(|counts| counts.live == 1).await;
    let client = pair.running.client.clone();
    let second = tokio::spawn(async move { client.open("/generate", "{}").await });
    pair.running.until(|router| router.waiting() == 1).await;
    second.abort();
    pair.running.until(|router| router.waiting() == 0).await;
    first.abort();
    assert_released(&pair).await;
    assert_eq!(pair.decode.counts().asked, 1);
}
