//! Prefill and decode as two processes; the test sends both legs, as a router does.

use crate::agent::Agent;
use hyper::Method;
use serde_json::{Value, json};
use std::net::TcpListener;

pub(crate) async fn start(mode: &str) -> Agent {
    let args = [
        "--disaggregation-mode",
        mode,
        "--disaggregation-bootstrap-port",
        "0",
    ];
    Agent::start(&args).await
}

#[tokio::test]
async fn a_side_of_a_pair_asks_for_its_bootstrap_fields() {
    let decode = start("decode").await;
    let body = json!({"text": "the sea"});
    let answer = decode.client.post(&decode.url("/generate"), &body).await;
    assert_eq!(answer.status, 400);
    assert_eq!(answer.json()["error"]["param"], "bootstrap_host");
}

#[tokio::test]
async fn the_fake_host_answers_without_a_peer() {
    for mode in ["prefill", "decode"] {
        let agent = start(mode).await;
        let body = json!({
            "text": "the sea", "sampling_params": {"max_new_tokens": 4, "ignore_eos": true},
            "bootstrap_host": "2.2.2.2", "bootstrap_room": 77,
        });
        let answer = agent.client.post(&agent.url("/generate"), &body).await.ok();
        let expected = if mode == "prefill" { 1 } else { 4 };
        assert_eq!(answer["meta_info"]["completion_tokens"], expected);
        assert_eq!(
            agent
                .client
                .get(&agent.url("/health_generate"))
                .await
                .status,
            200
        );
    }
}

/// SGLang's dummy test (docs/sglang-protocol.md#fake-transfers), its legs sent as its router sends them.
#[tokio::test]
async fn a_pair_over_fake_answers_both_legs_without_a_transfer() {
    let fake = ["--disaggregation-transfer-backend", "fake"];
    let ports = ["--disaggregation-bootstrap-port", "0"];
    let mode = |mode| [&["--disaggregation-mode", mode][..], &fake, &ports].concat();
    let (prefill, decode) = (mode("prefill"), mode("decode"));
    let (prefill, decode) = tokio::join!(Agent::start(&prefill), Agent::start(&decode));
    let body = json!({
        "messages": [{"role": "user", "content": "who are you?"}], "max_tokens": 12,
        "temperature": 0.7, "ignore_eos": true, "bootstrap_host": "127.0.0.1",
        "bootstrap_port": prefill.bootstrap_port, "bootstrap_room": 9,
    });
    let (first, answer) = both_legs(&prefill, &decode, "/v1/chat/completions", &body).await;
    assert_eq!(first["usage"]["completion_tokens"], 1);
    assert_eq!(answer["usage"]["completion_tokens"], 12);
    for agent in [&prefill, &decode] {
        agent.wait_idle().await;
        let info = agent.client.get(&agent.url("/server_info")).await.ok();
        assert_eq!(info["disaggregation_transfer_backend"], "fake");
    }
}

#[tokio::test]
async fn a_client_that_leaves_before_the_peer_came_ends_its_leg() {
    let prefill = start("prefill").await;
    let body = json!({
        "text": "the sea", "bootstrap_host": "127.0.0.1", "bootstrap_room": 5,
        "bootstrap_port": prefill.bootstrap_port,
    });
    let (client, url) = (prefill.client.clone(), prefill.url("/generate"));
    let leg = tokio::spawn(async move { client.post(&url, &body).await });
    prefill.wait_in_flight(1).await;
    leg.abort();
    prefill.wait_idle().await;
}

pub(crate) async fn both_legs(
    prefill: &Agent,
    decode: &Agent,
    path: &str,
    body: &Value,
) -> (Value, Value) {
    let (prefill_url, decode_url) = (prefill.url(path), decode.url(path));
    let legs = tokio::join!(
        prefill.client.post(&prefill_url, body),
        decode.client.post(&decode_url, body)
    );
    (legs.0.ok(), legs.1.ok())
}

async fn a_pair_at_answers_as_one_process_does(host: &str) {
    let at = async |mode| {
        let ports = ["--disaggregation-bootstrap-port", "0"];
        let args = ["--disaggregation-mode", mode, "--host", host];
        Agent::start(&[&args[..], &ports].concat()).await
    };
    let (prefill, decode, whole) = tokio::join!(at("prefill"), at("decode"), Agent::start(&[]));
    let mut body = json!({
        "text": ["the sea is wide and deep", "the sky"],
        "sampling_params": {"temperature": 0.8, "sampling_seed": 11, "max_new_tokens": 24, "n": 2},
        "return_logprob": true, "token_ids_logprob": [7, 40],
    });
    let alone = whole.client.post(&whole.url("/generate"), &body).await.ok();
    body["bootstrap_host"] = json!(host);
    body["bootstrap_port"] = json!(prefill.bootstrap_port);
    body["bootstrap_room"] = json!([101, 205, 309, 413]);
    let profile = async |agent: &Agent, what: &str| {
        let url = agent.admin_url(&format!("/{what}_profile"));
        agent.client.send(Method::POST, &url, "").await
    };
    profile(&prefill, "start").await;
    let (first, answers) = both_legs(&prefill, &decode, "/generate", &body).await;
    let profile = profile(&prefill, "stop").await.ok();
    let events = profile["traceEvents"].as_array().expect("a list");
    for room in [101, 205, 309, 413] {
        let track = format!("room {room}: transfer");
        let is_track = |event: &Value| event["args"]["name"] == track;
        assert!(events.iter().any(is_track), "{track}: {profile}");
    }
    assert_eq!(answers.as_array().unwrap().len(), 4);
    for part in 0..4 {
        let (one, other) = (&answers[part], &alone[part]);
        assert_eq!(one["output_ids"], other["output_ids"]);
        let logprobs = |a: &Value| a["meta_info"]["output_token_logprobs"].clone();
        assert_eq!(logprobs(one), logprobs(other));
        let named = |a: &Value| {
            a["meta_info"]["output_token_ids_logprobs"]
                .as_array()
                .cloned()
        };
        let (of_prefill, of_decode) = (named(&first[part]).unwrap(), named(one).unwrap());
        assert_eq!((of_prefill.len(), &of_decode[0]), (1, &Value::Null));
        let joined = [of_prefill, of_decode[1..].to_vec()].concat();
        assert_eq!(Some(joined), named(other));
        assert_eq!(first[part]["output_ids"][0], other["output_ids"][0]);
    }
    let timeline = decode
        .client
        .get(&decode.admin_url("/timeline/101"))
        .await
        .ok();
    assert_eq!(timeline["process"], "decode");
    prefill.wait_idle().await;
    decode.wait_idle().await;
}

#[tokio::test]
async fn a_pair_answers_as_one_process_does() {
    a_pair_at_answers_as_one_process_does("127.0.0.1").await;
    a_pair_at_answers_as_one_process_does("localhost").await;
    // A kernel may lack IPv6.
    if TcpListener::bind("[::1]:0").is_ok() {
        a_pair_at_answers_as_one_process_does("::1").await;
    }
}

#[tokio::test]
async fn prefill_returns_an_echoed_prompts_logprobs_and_decode_the_answers() {
    let (prefill, decode, whole) =
        tokio::join!(start("prefill"), start("decode"), Agent::start(&[]));
    let path = "/v1/completions";
    for (max_tokens, rooms) in [(6, [11, 12, 13, 14]), (0, [21, 22, 23, 24])] {
        let mut body = json!({
            "prompt": ["the sea is wide and deep", "the sky"], "echo": true, "logprobs": 2,
            "max_tokens": max_tokens, "temperature": 0, "ignore_eos": true, "n": 2,
        });
        let alone = whole.client.post(&whole.url(path), &body).await.ok();
        body["bootstrap_host"] = json!("127.0.0.1");
        body["bootstrap_port"] = json!(prefill.bootstrap_port);
        body["bootstrap_room"] = json!(rooms);
        let (prompts, answers) = both_legs(&prefill, &decode, path, &body).await;
        assert_eq!(answers["usage"], alone["usage"]);
        for part in 0..4 {
            for (name, list) in alone["choices"][part]["logprobs"].as_object().unwrap() {
                let listed = |by: &Value| {
                    let list = by["choices"][part]["logprobs"][name].as_array();
                    list.cloned().unwrap_or_default()
                };
                let joined = [listed(&prompts), listed(&answers)].concat();
                assert_eq!(&joined, list.as_array().unwrap(), "{name}");
                assert_eq!(listed(&answers).len(), max_tokens);
            }
            assert_eq!(
                answers["choices"][part]["text"],
                alone["choices"][part]["text"]
            );
        }
    }
}
