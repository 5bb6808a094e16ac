//! Pairs of vLLM's: prefill is asked first, and decode by what prefill has answered.

use crate::harness::{Running, config, serving};
use crate::mock::{Answer, Mock};
use http_body_util::BodyExt;
use pd_protocol::Role;
use serde_json::{Value, json};

/// What prefill answers; decode is to get `kv_transfer_params` with every digit.
const PREFILLED: &str = r#"{"id":"p","choices":[],"kv_transfer_params":{"do_remote_prefill":true,"remote_block_ids":[[3,1]],"remote_engine_id":"e","remote_port":5600,"x":1.10}}"#;

struct VllmPair {
    running: Running,
    prefill: Mock,
    decode: Mock,
}

/// A worker that says of itself what vLLM says.
async fn vllm(role: Role) -> Mock {
    let mock = Mock::start(role).await;
    let card = json!({"id": "m", "object": "model", "owned_by": "vllm", "max_model_len": 2048});
    mock.say_at("/v1/models", json!({"object": "list", "data": [card]}));
    mock.set_pings(true);
    mock
}

impl VllmPair {
    async fn start(flags: &str) -> Self {
        let (prefill, decode) = (vllm(Role::Prefill).await, vllm(Role::Decode).await);
        prefill.answer(Answer::Json(PREFILLED.to_owned()));
        let running = Running::start(config(flags), &[&prefill, &decode]).await;
        Self {
            running,
            prefill,
            decode,
        }
    }

    async fn assert_released(&self) {
        for worker in [&self.prefill, &self.decode] {
            worker.until(|counts| counts.live == 0).await;
        }
        self.running.until_idle().await;
    }
}

#[tokio::test]
async fn prefill_computes_one_token_and_decode_gets_the_clients_bytes_with_its_parameters() {
    let pair = VllmPair::start("").await;
    pair.decode.answer(Answer::Json(r#"{"id":"d"}"#.to_owned()));
    let asked = r#"{"model":"m","messages":[{"role":"user","content":"a"}],"stream":false,"max_tokens":64,"min_tokens":9,"temperature":0.70}"#;
    let reply = pair
        .running
        .client
        .post("/v1/chat/completions", asked)
        .await;
    assert_eq!((reply.status(), reply.text()), (200, r#"{"id":"d"}"#));
    assert_eq!(reply.headers()["x-pdserve-prefill"], pair.prefill.id());
    assert_eq!(reply.headers()["x-pdserve-decode"], pair.decode.id());

    let prefill = pair.prefill.asked_json(0);
    for (field, value) in [
        ("max_tokens", json!(1)),
        ("max_completion_tokens", json!(1)),
        ("min_tokens", json!(0)),
        ("n", json!(1)),
        ("stream", json!(false)),
        ("stream_options", Value::Null),
        ("temperature", json!(0.70)),
    ] {
        assert_eq!(prefill[field], value, "{field}");
    }
    let params = &prefill["kv_transfer_params"];
    assert_eq!(params["do_remote_decode"], true);
    assert!(prefill.get("bootstrap_room").is_none(), "{prefill}");

    let params = PREFILLED
        .split_once("params\":")
        .unwrap()
        .1
        .strip_suffix('}')
        .unwrap();
    let added = format!(r#","kv_transfer_params":{params}}}"#);
    let expected = asked.strip_suffix('}').unwrap().to_owned() + &added;
    assert_eq!(pair.decode.asked()[0].body, expected);
    pair.assert_released().await;
}

#[tokio::test]
async fn a_stream_is_decodes_own() {
    let pair = VllmPair::start("").await;
    let events = ["data: {\"a\":1}\n\n", "data: [DONE]\n\n"];
    pair.decode
        .answer(Answer::Events(events.map(str::to_owned).to_vec()));
    let asked = r#"{"prompt":"a","stream":true,"stream_options":{"include_usage":true}}"#;
    let reply = pair.running.client.post("/v1/completions", asked).await;
    assert_eq!(reply.text(), events.concat());
    assert_eq!(pair.prefill.asked_json(0)["stream"], false);
    assert_eq!(pair.decode.asked_json(0)["stream"], true);
    pair.assert_released().await;
}

#[tokio::test]
async fn parameters_that_a_client_sends_are_the_routers_to_set() {
    let pair = VllmPair::start("").await;
    let asked = r#"{"prompt":"a","kv_transfer_params":{"do_remote_prefill":true,"remote_host":"169.254.169.254"}}"#;
    let reply = pair.running.client.post("/v1/completions", asked).await;
    assert_eq!(reply.status(), 200);
    for worker in [&pair.prefill, &pair.decode] {
        let body = worker.asked_json(0).to_string();
        assert!(!body.contains("169.254"), "{body}");
    }
}

#[tokio::test]
async fn an_answer_without_parameters_is_a_failed_attempt_that_says_what_to_do() {
    let pair = VllmPair::start("--retry-max-retries 1").await;
    pair.prefill
        .answer(Answer::Json(r#"{"id":"p"}"#.to_owned()));
    let reply = pair
        .running
        .client
        .post("/v1/completions", r#"{"prompt":"a"}"#)
        .await;
    assert_eq!(reply.status(), 502);
    assert!(
        reply.text().contains("--kv-transfer-config"),
        "{}",
        reply.text()
    );
    assert_eq!(pair.decode.counts().asked, 0);
    assert_eq!(pair.prefill.counts().asked, 2);
    pair.assert_released().await;
}

#[tokio::test]
async fn a_decode_that_fails_is_tried_again_with_a_prefill_of_its_own() {
    let pair = VllmPair::start("").await;
    let ok = Answer::Json(r#"{"id":"d"}"#.to_owned());
    pair.decode
        .answer_in_turn([Answer::Status(500, "{}".to_owned()), ok]);
    let reply = pair
        .running
        .client
        .post("/v1/completions", r#"{"prompt":"a"}"#)
        .await;
    assert_eq!(reply.status(), 200);
    assert_eq!(
        (pair.prefill.counts().asked, pair.decode.counts().asked),
        (2, 2)
    );
}

#[tokio::test]
async fn what_prefill_refuses_is_the_clients_answer_and_decode_is_not_asked() {
    let pair = VllmPair::start("").await;
    let refusal = r#"{"error":{"message":"too long"}}"#;
    pair.prefill.answer(Answer::Status(400, refusal.to_owned()));
    let reply = pair
        .running
        .client
        .post("/v1/completions", r#"{"prompt":"a"}"#)
        .await;
    assert_eq!((reply.status(), reply.text()), (400, refusal));
    assert_eq!(pair.decode.counts().asked, 0);
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_leg_that_runs() {
    let pair = VllmPair::start("").await;
    pair.prefill.answer(Answer::Hang);
    let client = pair.running.client.clone();
    let asking =
        tokio::spawn(async move { client.open("/v1/completions", r#"{"prompt":"a"}"#).await });
    pair.prefill.until(|counts| counts.live == 1).await;
    asking.abort();
    pair.assert_released().await;
    assert_eq!(pair.decode.counts().asked, 0);

    pair.prefill.answer(Answer::Json(PREFILLED.to_owned()));
    pair.decode
        .answer(Answer::EventsThenHang(vec!["data: {}\n\n".to_owned()]));
    let asked = r#"{"prompt":"a","stream":true}"#;
    let mut body = pair
        .running
        .client
        .open("/v1/completions", asked)
        .await
        .into_body();
    assert!(body.frame().await.unwrap().is_ok());
    drop(body);
    pair.assert_released().await;
}

#[tokio::test]
async fn workers_of_different_engines_are_no_pair() {
    let (prefill, decode) = (vllm(Role::Prefill).await, Mock::start(Role::Decode).await);
    decode.say_at(
        "/v1/models",
        json!({"data": [{"id": "m", "owned_by": "sglang"}]}),
    );
    let flags = "--no-worker-timeout-secs 0";
    let running = Running::start(config(flags), &[&prefill, &decode]).await;
    running.until(|router| serving(router) == 2).await;
    let reply = running
        .client
        .post("/v1/completions", r#"{"prompt":"a"}"#)
        .await;
    assert_eq!(reply.status(), 503, "{}", reply.text());
    assert_eq!(prefill.counts().asked + decode.counts().asked, 0);
}

#[tokio::test]
async fn generate_and_responses_are_refused_in_words() {
    let pair = VllmPair::start("").await;
    let reply = pair
        .running
        .client
        .post("/generate", r#"{"text":"a"}"#)
        .await;
    assert_eq!(reply.status(), 404);
    assert!(reply.text().contains("/v1/completions"), "{}", reply.text());
    let asked = r#"{"input":"a"}"#;
    let reply = pair.running.client.post("/v1/responses", asked).await;
    assert_eq!(reply.status(), 404);
    assert!(
        reply.text().contains("/v1/chat/completions"),
        "{}",
        reply.text()
    );
    assert_eq!(pair.prefill.counts().asked, 0);
}

/// The fields of each request that a worker was asked with, in the order of a field's value.
fn asked_fields(mock: &Mock, fields: [&str; 3]) -> Vec<[Value; 3]> {
    let asked = (0..mock.counts().asked).map(|idx| mock.asked_json(idx));
    let mut asked: Vec<_> = asked
        .map(|body| fields.map(|field| body[field].clone()))
        .collect();
    asked.sort_by_key(|fields| Value::from(fields.to_vec()).to_string());
    asked
}

#[tokio::test]
async fn each_answer_has_a_prefill_of_its_own_and_they_become_one() {
    let pair = VllmPair::start("").await;
    let answer = r#"{"id":"d","created":1,"choices":[{"index":0,"text":"t","logprob":-0.10}],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}"#;
    pair.decode.answer(Answer::Json(answer.to_owned()));
    let asked = r#"{"prompt":["a","b"],"n":2,"seed":7}"#;
    let reply = pair.running.client.post("/v1/completions", asked).await;
    let choice = |idx: u32| format!(r#"{{"index":{idx},"text":"t","logprob":-0.10}}"#);
    let choices = [0, 1, 2, 3].map(choice).join(",");
    let usage = r#"{"prompt_tokens":10,"completion_tokens":8,"total_tokens":18}"#;
    let merged = format!(r#"{{"id":"d","created":1,"choices":[{choices}],"usage":{usage}}}"#);
    assert_eq!((reply.status(), reply.text()), (200, merged.as_str()));

    let expected = [("a", 7), ("a", 8), ("b", 7), ("b", 8)];
    let expected = expected.map(|(prompt, seed)| [json!(prompt), json!(1), json!(seed)]);
    for worker in [&pair.prefill, &pair.decode] {
        assert_eq!(asked_fields(worker, ["prompt", "n", "seed"]), expected);
    }
    pair.assert_released().await;
}

#[tokio::test]
async fn the_streams_of_all_answers_are_one_with_one_end() {
    let pair = VllmPair::start("").await;
    let event = |text: &str| format!(r#"{{"id":"d","choices":[{{"index":0,"text":"{text}"}}]}}"#);
    let usage = r#"{"id":"d","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}}"#;
    let events = [
        event("x"),
        event("y"),
        usage.to_owned(),
        "[DONE]".to_owned(),
    ];
    let events = events.map(|data| format!("data: {data}\n\n")).to_vec();
    pair.decode.answer(Answer::Events(events));
    let asked = r#"{"messages":[],"n":3,"stream":true}"#;
    let reply = pair
        .running
        .client
        .post("/v1/chat/completions", asked)
        .await;
    assert_eq!(
        reply.headers()["content-type"],
        "text/event-stream; charset=utf-8"
    );
    let text = reply.text();
    let mut events: Vec<_> = text.split_terminator("\n\n").collect();
    assert_eq!(events.pop(), Some("data: [DONE]"), "{text}");
    let usage = r#"{"prompt_tokens":5,"completion_tokens":6,"total_tokens":11}"#;
    let last = format!(r#"data: {{"id":"d","choices":[],"usage":{usage}}}"#);
    assert_eq!(events.pop(), Some(last.as_str()));
    for idx in 0..3 {
        let of = format!("\"index\":{idx},");
        let own: Vec<_> = events.iter().filter(|event| event.contains(&of)).collect();
        assert!(
            own.len() == 2 && own[0].contains("\"x\"") && own[1].contains("\"y\""),
            "{text}"
        );
    }
    assert_eq!(events.len(), 6);
    pair.assert_released().await;
}

#[tokio::test]
async fn one_part_that_fails_fails_the_answer_and_ends_the_others() {
    let pair = VllmPair::start("--retry-max-retries 0").await;
    let refusal = r#"{"error":{"message":"no"}}"#;
    pair.decode
        .answer_in_turn([Answer::Status(400, refusal.to_owned()), Answer::Hang]);
    let asked = r#"{"prompt":"a","n":4}"#;
    let reply = pair.running.client.post("/v1/completions", asked).await;
    assert_eq!((reply.status(), reply.text()), (400, refusal));
    pair.assert_released().await;

    let broken = vec![
        "data: {\"choices\":[{\"index\":0}]}\n\n".to_owned(),
        "event: error\ndata: {\"error\":{\"message\":\"no\"}}\n\n".to_owned(),
    ];
    pair.decode
        .answer_in_turn([Answer::Events(broken), Answer::Hang]);
    let asked = r#"{"prompt":"a","n":4,"stream":true}"#;
    let reply = pair.running.client.post("/v1/completions", asked).await;
    assert!(
        reply
            .text()
            .ends_with("{\"error\":{\"message\":\"no\"}}\n\n"),
        "{}",
        reply.text()
    );
    pair.assert_released().await;
}

#[tokio::test]
async fn a_client_that_leaves_ends_all_parts() {
    let pair = VllmPair::start("").await;
    pair.decode.answer(Answer::EventsThenHang(vec![
        "data: {\"choices\":[{}]}\n\n".to_owned(),
    ]));
    let asked = r#"{"prompt":"a","n":4,"stream":true}"#;
    let mut body = pair
        .running
        .client
        .open("/v1/completions", asked)
        .await
        .into_body();
    assert!(body.frame().await.unwrap().is_ok());
    pair.decode.until(|counts| counts.live == 4).await;
    drop(body);
    pair.assert_released().await;
}
