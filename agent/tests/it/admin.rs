//! The admin API: cordon, uncordon, drain, and whom it answers.

use crate::agent::Agent;
use hyper::Method;
use serde_json::{Value, json};

async fn post(agent: &Agent, path: &str) -> Value {
    agent
        .client
        .send(Method::POST, &agent.admin_url(path), "")
        .await
        .ok()
}

async fn ask(agent: &Agent) -> u16 {
    let body = json!({"prompt": "a", "max_tokens": 1});
    agent
        .client
        .post(&agent.url("/v1/completions"), &body)
        .await
        .status
}

#[tokio::test]
async fn a_cordon_refuses_new_work_retriably_until_lifted() {
    let agent = Agent::start(&[]).await;
    assert_eq!(post(&agent, "/cordon").await["state"], "cordoned");
    assert_eq!(ask(&agent).await, 503);
    assert_eq!(agent.client.get(&agent.url("/health")).await.status, 200);
    assert_eq!(post(&agent, "/uncordon").await["state"], "serving");
    assert_eq!(ask(&agent).await, 200);
}

#[tokio::test]
async fn a_drain_is_for_good_and_ends_drained() {
    let agent = Agent::start(&[]).await;
    assert_eq!(post(&agent, "/drain").await["state"], "drained");
    assert_eq!(post(&agent, "/uncordon").await["state"], "drained");
    assert_eq!(ask(&agent).await, 503);
}

#[tokio::test]
async fn a_profile_is_recorded_between_start_and_stop() {
    let agent = Agent::start(&[]).await;
    let post = async |path| {
        agent
            .client
            .send(Method::POST, &agent.admin_url(path), "")
            .await
    };
    assert_eq!(post("/stop_profile").await.status, 409);
    assert_eq!(post("/start_profile").await.status, 200);
    assert_eq!(post("/start_profile").await.status, 409);
    // A turn ends after its answer is here, and before the next one begins.
    assert_eq!(ask(&agent).await, 200);
    assert_eq!(ask(&agent).await, 200);
    let trace = post("/stop_profile").await.ok();
    let events = trace["traceEvents"].as_array().expect("a list");
    let named = |name: &str| events.iter().filter(|event| event["name"] == name).count();
    for phase in [
        "receive",
        "schedule and launch",
        "wait for the device",
        "settle",
    ] {
        assert!(named(phase) > 0, "{phase}: {trace}");
    }
    // Two prompts of one token.
    assert_eq!(named("prefill") + named("decode"), 2, "{trace}");
}

#[tokio::test]
async fn a_token_is_asked_for_where_there_is_one() {
    let env = [("PDSERVE_ADMIN_TOKEN", "right")];
    let agent = Agent::start_with_env(&[], &env).await;
    let url = agent.admin_url("/drain");
    assert_eq!(agent.client.get(&url).await.status, 401);
    assert_eq!(
        agent.client.with_bearer("wrong").get(&url).await.status,
        401
    );
    assert_eq!(
        agent.client.with_bearer("right").get(&url).await.status,
        200
    );
}

#[tokio::test]
async fn admin_doors_are_not_on_the_http_port() {
    let agent = Agent::start(&[]).await;
    let answer = agent
        .client
        .send(Method::POST, &agent.url("/drain"), "")
        .await;
    assert_eq!(answer.status, 404);
    let unknown = agent.client.get(&agent.admin_url("/timeline/5")).await;
    assert_eq!(unknown.status, 404);
    let wrong = agent.client.get(&agent.admin_url("/timeline/x")).await;
    assert_eq!(wrong.status, 400);
    assert_eq!(wrong.json()["error"]["param"], "room");
}
