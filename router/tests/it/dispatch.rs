//! Both legs get the client's bytes with the same room; decode's answer is the client's.

use crate::harness::{Pair, Running, config};
use crate::mock::{Answer, Mock};
use http::Method;
use pd_protocol::Role;
use serde_json::json;

#[tokio::test]
async fn both_legs_get_the_clients_bytes_and_one_room() {
    let pair = Pair::start("").await;
    pair.decode
        .answer(Answer::Json(r#"{"id":1.50}"#.to_owned()));
    let body = r#"{"messages":[], "temperature":0.10, "x_unknown":{"a":1e0}, "bootstrap_room":5}"#;
    let reply = pair.running.client.post("/v1/chat/completions", body).await;
    assert_eq!((reply.status(), reply.text()), (200, r#"{"id":1.50}"#));

    let (prefill, decode) = (&pair.prefill.asked()[0], &pair.decode.asked()[0]);
    assert_eq!(prefill.body, decode.body);
    assert_eq!(prefill.path, "/v1/chat/completions");
    let room = pair.decode.asked_json(0)["bootstrap_room"]
        .as_u64()
        .unwrap();
    assert_eq!(
        std::str::from_utf8(&decode.body).unwrap(),
        format!(
            "{{\"messages\":[], \"temperature\":0.10, \"x_unknown\":{{\"a\":1e0}}, \
             \"bootstrap_room\":{room},\"bootstrap_host\":\"127.0.0.1\",\"bootstrap_port\":8998}}"
        )
    );
    assert_eq!(reply.headers()["x-pdserve-room"], room.to_string());
    assert_eq!(reply.headers()["x-pdserve-prefill"], pair.prefill.id());
    assert_eq!(reply.headers()["x-pdserve-decode"], pair.decode.id());
    pair.running.until_idle().await;
}

#[tokio::test]
async fn a_response_is_dispatched_as_a_chat_is() {
    let pair = Pair::start("").await;
    pair.decode
        .answer(Answer::Json(r#"{"id":"resp_1"}"#.to_owned()));
    let body = r#"{"input":["a","b"],"n":2}"#;
    let reply = pair.running.client.post("/v1/responses", body).await;
    assert_eq!((reply.status(), reply.text()), (200, r#"{"id":"resp_1"}"#));
    let (prefill, decode) = (&pair.prefill.asked()[0], &pair.decode.asked()[0]);
    assert_eq!(prefill.body, decode.body);
    assert_eq!(prefill.path, "/v1/responses");
    assert!(pair.decode.asked_json(0)["bootstrap_room"].is_u64());
    let reply = pair.running.client.get("/v1/responses/resp_1").await;
    assert_eq!(reply.status(), 404);
    assert!(
        reply.text().contains("response_not_found"),
        "{}",
        reply.text()
    );
    pair.running.until_idle().await;
}

#[tokio::test]
async fn a_batch_has_a_room_for_each_answer() {
    let pair = Pair::start("").await;
    let body = r#"{"prompt":["a","b"],"n":2}"#;
    pair.running.client.post("/v1/completions", body).await;
    let asked = pair.decode.asked_json(0);
    let first = asked["bootstrap_room"][0].as_u64().unwrap();
    assert_eq!(
        asked["bootstrap_room"],
        json!([first, first + 1, first + 2, first + 3])
    );
    assert_eq!(asked["bootstrap_port"], json!([8998, 8998, 8998, 8998]));
    let timeline = format!("/timeline/{}", first + 3);
    assert_eq!(pair.running.admin.get(&timeline).await.status(), 200);
}

#[tokio::test]
async fn a_stream_passes_byte_for_byte() {
    let pair = Pair::start("").await;
    let pieces = [
        "data: {\"a\":1}\n\n",
        "data: {\"b\"",
        ":2}\n\ndata: [DONE]\n\n",
    ];
    pair.decode
        .answer(Answer::Events(pieces.map(str::to_owned).to_vec()));
    let body = r#"{"stream":true}"#;
    let reply = pair.running.client.post("/generate", body).await;
    assert_eq!(reply.text(), pieces.concat());
    assert_eq!(reply.headers()["content-type"], "text/event-stream");
    pair.running.until_idle().await;
    assert_eq!(
        pair.running
            .metric("pd_router_answers_total{outcome=\"complete\"}")
            .await,
        1.0
    );
}

#[tokio::test]
async fn an_answer_of_a_known_length_that_comes_in_pieces_is_complete() {
    let pair = Pair::start("").await;
    let answer = json!({"text": "x".repeat(4 << 20)}).to_string();
    pair.decode.answer(Answer::Json(answer.clone()));
    let reply = pair.running.client.post("/generate", "{}").await;
    let len = answer.len().to_string();
    assert_eq!(reply.headers()["content-length"], len.as_str());
    assert!(reply.text() == answer);
    pair.running.until_idle().await;
    let complete = "pd_router_answers_total{outcome=\"complete\"}";
    assert_eq!(pair.running.metric(complete).await, 1.0);
}

#[tokio::test]
async fn decodes_answer_does_not_wait_for_prefills() {
    let pair = Pair::start("").await;
    pair.prefill.answer(Answer::Hang);
    let reply = pair.running.client.post("/generate", "{}").await;
    assert_eq!(reply.status(), 200);
}

#[tokio::test]
async fn headers_are_passed_on_but_for_those_of_the_connection() {
    let pair = Pair::start("").await;
    let headers = [
        ("x-custom", "1"),
        ("x-request-id", "mine"),
        ("te", "trailers"),
    ];
    let client = &pair.running.client;
    let reply = client.call(Method::POST, "/generate", &headers, "{}").await;
    assert_eq!(reply.headers()["x-request-id"], "mine");
    for worker in [&pair.prefill, &pair.decode] {
        let asked = &worker.asked()[0].headers;
        assert_eq!(asked["x-custom"], "1");
        assert_eq!(asked["x-request-id"], "mine");
        assert!(!asked.contains_key("te"));
    }
    let reply = client.post("/generate", "{}").await;
    assert_eq!(
        reply.headers()["x-request-id"],
        pair.prefill.asked()[1].headers["x-request-id"]
    );
}

#[tokio::test]
async fn a_unified_worker_gets_the_bytes_as_they_are() {
    let worker = Mock::start(Role::Unified).await;
    let running = Running::start(config(""), &[&worker]).await;
    let reply = running
        .client
        .post("/v1/completions", r#"{"prompt":"a"}"#)
        .await;
    assert_eq!(reply.status(), 200);
    assert_eq!(worker.asked()[0].body, r#"{"prompt":"a"}"#);
    assert!(!reply.headers().contains_key("x-pdserve-room"));
}

#[tokio::test]
async fn load_spreads_over_both_pools() {
    let mut mocks = Vec::new();
    for role in [Role::Prefill, Role::Prefill, Role::Decode, Role::Decode] {
        mocks.push(Mock::start(role).await);
    }
    let workers: Vec<_> = mocks.iter().collect();
    let running = Running::start(config("--policy round_robin"), &workers).await;
    for _ in 0..6 {
        running.client.post("/generate", r#"{"text":"a"}"#).await;
    }
    let asked: Vec<_> = mocks.iter().map(|mock| mock.counts().asked).collect();
    assert_eq!(asked, [3, 3, 3, 3]);
}

#[tokio::test]
async fn the_routers_stages_are_listed_in_order() {
    let pair = Pair::start("").await;
    let reply = pair.running.client.post("/generate", "{}").await;
    let room = reply.headers()["x-pdserve-room"].to_str().unwrap();
    let timeline = pair
        .running
        .admin
        .get(&format!("/timeline/{room}"))
        .await
        .json();
    let events = timeline["events"].as_array().unwrap();
    let stages: Vec<_> = events
        .iter()
        .map(|event| event["stage"].as_str().unwrap())
        .collect();
    assert_eq!(
        stages,
        [
            "router_accepted",
            "router_dispatched",
            "router_first_byte",
            "router_done"
        ]
    );
    assert!(events.is_sorted_by_key(|event| event["at_unix_ns"].as_u64()));
}

#[tokio::test]
async fn questions_go_to_the_workers() {
    let pair = Pair::start("").await;
    let client = &pair.running.client;
    pair.prefill
        .answer(Answer::Json(r#"{"model_path":"/m"}"#.to_owned()));
    assert_eq!(
        client.get("/get_model_info").await.json()["model_path"],
        "/m"
    );
    let info = client.get("/server_info").await.json();
    assert_eq!(info["decode"][0]["kv_compat"], "x");
    assert_eq!(client.post("/flush_cache", "").await.status(), 200);
    assert_eq!(pair.decode.asked()[0].path, "/flush_cache");
    let models = client.get("/v1/models").await.json();
    assert_eq!(models["data"][0]["id"], "m");
    assert_eq!(client.get("/v1/models/m").await.status(), 200);
    let unknown = client.get("/v1/models/other").await;
    assert_eq!(unknown.status(), 404);
    assert_eq!(unknown.json()["error"]["code"], "model_not_found");
    assert_eq!(client.get("/health").await.status(), 200);
    assert_eq!(client.get("/ready").await.status(), 200);
}

#[tokio::test]
async fn any_worker_of_the_model_tokenises() {
    let pair = Pair::start("").await;
    let client = &pair.running.client;
    let answer = r#"{"tokens":[1],"count":1}"#;
    for worker in [&pair.prefill, &pair.decode] {
        worker.answer(Answer::Json(answer.to_owned()));
    }
    let body = r#"{"model": "m", "prompt": "a"}"#;
    for path in ["/tokenize", "/v1/tokenize", "/detokenize", "/v1/detokenize"] {
        let reply = client.post(path, body).await;
        assert_eq!((reply.status(), reply.text()), (200, answer));
    }
    let asked = [pair.prefill.asked(), pair.decode.asked()].concat();
    assert_eq!(asked.len(), 4);
    let as_all_engines_do = |path: &str| ["/tokenize", "/detokenize"].contains(&path);
    for asked in &asked {
        assert!(asked.body == body && as_all_engines_do(&asked.path));
    }
    for worker in [&pair.prefill, &pair.decode] {
        worker.answer(Answer::Status(400, r#"{"error":{}}"#.to_owned()));
    }
    let refused = client.post("/tokenize", "no JSON").await;
    assert_eq!((refused.status(), refused.text()), (400, r#"{"error":{}}"#));
    let unknown = client.post("/tokenize", r#"{"model": "other"}"#).await;
    assert_eq!(unknown.status(), 404);
    assert_eq!(unknown.json()["error"]["code"], "model_not_found");
}

#[tokio::test]
async fn workers_are_reached_by_name() {
    let worker = Mock::start(Role::Unified).await;
    let running = Running::start(config(""), &[]).await;
    let mut spec = worker.spec();
    spec.url = format!("http://localhost:{}", worker.addr.port());
    running.router.add_worker(spec).unwrap();
    running.until(|router| router.is_routable()).await;
    let reply = running.client.post("/generate", "{}").await;
    assert_eq!(reply.status(), 200);
    assert_eq!(
        worker.asked()[0].headers["host"],
        format!("localhost:{}", worker.addr.port())
    );
}

#[tokio::test]
async fn a_model_is_listed_with_the_length_that_all_its_workers_take() {
    let (prefill, decode) = (
        Mock::start(Role::Prefill).await,
        Mock::start(Role::Decode).await,
    );
    prefill.set_info("context_length", json!(8192));
    decode.set_info("context_length", json!(4096));
    let running = Running::start(config(""), &[&prefill, &decode]).await;
    let model = running.client.get("/v1/models/m").await.json();
    assert_eq!(model["max_model_len"], 4096);
    assert_eq!(
        (&model["root"], &model["parent"]),
        (&json!("m"), &json!(null))
    );
    let listed = running.client.get("/v1/models").await.json();
    assert_eq!(listed["data"], json!([model]));
}
