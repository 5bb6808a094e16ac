//! How requests and the process end: clients that leave, and SIGTERM.

use crate::agent::Agent;
use serde_json::{Value, json};

/// An answer that takes a while: many steps of a tiny model.
fn long() -> Value {
    json!({"prompt": [5, 6, 7], "max_tokens": 1500, "ignore_eos": true, "stream": true})
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_request() {
    let agent = Agent::start(&[]).await;
    let mut events = agent
        .client
        .stream(&agent.url("/v1/completions"), &long())
        .await;
    assert!(events.next().await.is_some());
    assert_eq!(agent.in_flight().await, 1);
    drop(events);
    agent.wait_idle().await;
}

#[tokio::test]
async fn sigterm_lets_answers_finish_and_exits_0() {
    let mut agent = Agent::start(&[]).await;
    let mut events = agent
        .client
        .stream(&agent.url("/v1/completions"), &long())
        .await;
    assert!(events.next().await.is_some());
    agent.terminate();
    let rest = events.all().await;
    assert_eq!(
        rest.last().unwrap()["choices"][0]["finish_reason"],
        "length"
    );
    assert_eq!(agent.wait_exit().await.code(), Some(0));
}

#[tokio::test]
async fn at_the_deadline_answers_are_cut_off_with_an_error_event() {
    let mut agent = Agent::start(&["--drain-timeout-secs", "0"]).await;
    let mut events = agent
        .client
        .stream(&agent.url("/v1/completions"), &long())
        .await;
    assert!(events.next().await.is_some());
    agent.terminate();
    let mut last = Value::Null;
    while let Some(data) = events.next().await {
        last = serde_json::from_str(&data).expect("a stream that is cut off says no [DONE]");
    }
    assert_eq!(last["error"]["code"], "service_unavailable");
    assert_eq!(agent.wait_exit().await.code(), Some(0));
}
