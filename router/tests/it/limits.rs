//! What the router takes on, and what it refuses.

use crate::harness::{Pair, Running, config};
use crate::mock::{Answer, Mock};
use bytes::Bytes;
use http::Method;
use pd_protocol::Role;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

#[tokio::test]
async fn a_request_beyond_the_queue_is_refused_at_once() {
    let pair = Pair::start("--max-concurrent-requests 1 --queue-size 0").await;
    pair.prefill.answer(Answer::Hang);
    pair.decode.answer(Answer::Hang);
    let client = pair.running.client.clone();
    let first = tokio::spawn(async move { client.open("/generate", "{}").await });
    pair.decode.until(|counts| counts.live == 1).await;
    let reply = pair.running.client.post("/generate", "{}").await;
    assert_eq!(
        (reply.status(), &reply.headers()["retry-after"]),
        (429, &"1".parse().unwrap())
    );
    assert_eq!(reply.json()["error"]["code"], "queue_full");
    first.abort();
    pair.decode.answer(Answer::Json("{}".to_owned()));
    pair.running.until_idle().await;
    assert_eq!(
        pair.running.client.post("/generate", "{}").await.status(),
        200
    );
}

#[tokio::test]
async fn a_place_is_held_until_the_last_byte() {
    let pair = Pair::start("--max-concurrent-requests 1 --queue-size 0").await;
    pair.decode
        .answer(Answer::EventsThenHang(vec!["data: {}\n\n".to_owned()]));
    let stream = pair
        .running
        .client
        .open("/generate", r#"{"stream":true}"#)
        .await;
    assert_eq!(
        pair.running.client.post("/generate", "{}").await.status(),
        429
    );
    drop(stream);
    pair.running.until_idle().await;
    pair.decode.answer(Answer::Json("{}".to_owned()));
    assert_eq!(
        pair.running.client.post("/generate", "{}").await.status(),
        200
    );
}

#[tokio::test]
async fn bodies_that_others_hold_leave_no_room_and_come_back() {
    let flags = "--max-payload-size 1048576 --max-total-payload-size 1048576";
    let pair = Pair::start(flags).await;
    let client = &pair.running.client;
    let body = || format!("{{\"text\":\"{}\"}}", "a".repeat(300_000));
    assert_eq!(client.post("/generate", body()).await.status(), 200);
    let mut holder = TcpStream::connect(pair.running.api_addr).await.unwrap();
    let head = "POST /generate HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\n";
    holder.write_all(head.as_bytes()).await.unwrap();
    holder.write_all(&[b' '; 900_000]).await.unwrap();
    // Meanwhile, on the same thread, the router reads what the holder has sent.
    for _ in 0..50 {
        assert_eq!(client.post("/generate", "{}").await.status(), 200);
    }
    let refused = client.post("/generate", body()).await;
    assert_eq!(refused.status(), 503);
    assert_eq!(refused.json()["error"]["code"], "bodies_too_large");
    assert_eq!(
        client.post("/generate", "{}").await.status(),
        200,
        "a small one"
    );
    drop(holder);
    pair.running.until_idle().await;
    let again = client.post("/generate", body()).await;
    assert_eq!(again.status(), 200, "{}", again.text());
}

#[tokio::test]
async fn a_hundred_megabytes_are_refused_and_no_worker_hears_of_them() {
    let pair = Pair::start("").await;
    let body = Bytes::from(vec![b' '; 100 << 20]);
    let reply = pair.running.client.post("/generate", body).await;
    assert_eq!(reply.status(), 413);
    assert!(reply.error().contains("--max-payload-size"));
    assert_eq!(pair.decode.counts().asked, 0);
}

#[tokio::test]
async fn a_body_beyond_what_any_worker_takes_is_refused_here() {
    let (small, large) = (
        Mock::start(Role::Prefill).await,
        Mock::start(Role::Decode).await,
    );
    small.set_info("max_body_bytes", json!(1000));
    large.set_info("max_body_bytes", json!(2000));
    let running = Running::start(config(""), &[&small, &large]).await;
    let padded = |len: usize| {
        let mut body = json!({"text": "a"}).to_string();
        body.push_str(&" ".repeat(len - body.len()));
        Bytes::from(body)
    };
    let reply = running.client.post("/generate", padded(2001)).await;
    assert_eq!(reply.status(), 413);
    let message = "the body is larger than 2000 bytes (--max-body-bytes of the workers)";
    assert_eq!(reply.error(), message);
    assert_eq!(large.counts().asked, 0);
    let reply = running.client.post("/generate", padded(2000)).await;
    assert_eq!(reply.status(), 200);
}

#[tokio::test]
async fn a_body_within_the_limit_passes_whole() {
    let pair = Pair::start("").await;
    let body = format!(r#"{{"text":"{}"}}"#, "é".repeat(4 << 20));
    let reply = pair.running.client.post("/generate", body.clone()).await;
    assert_eq!(reply.status(), 200);
    assert!(
        pair.prefill.asked()[0]
            .body
            .starts_with(&body.as_bytes()[..body.len() - 1])
    );
}

#[tokio::test]
async fn without_the_key_nothing_is_served() {
    let worker = Mock::start(Role::Unified).await;
    let running = Running::start(config("--api-key k1"), &[&worker]).await;
    let call = |key: &'static str| {
        let headers = [("authorization", key)];
        let client = running.client.clone();
        async move { client.call(Method::POST, "/generate", &headers, "{}").await }
    };
    let reply = call("Bearer k2").await;
    assert_eq!((reply.status(), reply.error().contains("k2")), (401, false));
    assert_eq!(worker.counts().asked, 0);
    assert_eq!(call("Bearer k1").await.status(), 200);
    assert_eq!(worker.asked()[0].headers["authorization"], "Bearer k1");
    assert_eq!(running.client.get("/health").await.status(), 200);
    assert_eq!(running.client.get("/v1/models").await.status(), 401);
}

#[tokio::test]
async fn a_request_that_takes_too_long_is_answered_with_504() {
    let pair = Pair::start("--request-timeout-secs 0").await;
    pair.prefill.answer(Answer::Hang);
    pair.decode.answer(Answer::Hang);
    let reply = pair.running.client.post("/generate", "{}").await;
    assert_eq!(reply.status(), 504);
    assert!(reply.error().contains("--request-timeout-secs"));
    pair.running.until_idle().await;
}
