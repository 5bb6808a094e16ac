//! Weights that are replaced while the process goes on: by one agent under load, by both sides of a pair, and not at all where
//! they cannot be.

use crate::agent::{Agent, tiny_model};
use crate::client::Answer;
use crate::disaggregation::{both_legs, start};
use hyper::Method;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// Requests at a time under load.
const CLIENTS: usize = 8;

/// The tiny model with other weights: every third value of the file has the other sign.
fn other_weights() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(tiny_model()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_owned();
        let mut bytes = fs::read(&path).unwrap();
        if name == "model.safetensors" {
            let header = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            let data = 8 + usize::try_from(header).unwrap();
            let signs = bytes[data..].iter_mut().skip(3).step_by(12);
            signs.for_each(|byte| *byte ^= 0x80);
        }
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    folder
}

fn text(path: &Path) -> &str {
    path.to_str().expect("the path is UTF-8")
}

async fn update(agent: &Agent, body: Value) -> Answer {
    let url = agent.admin_url("/update_weights_from_disk");
    agent.client.post(&url, &body).await
}

async fn status(agent: &Agent) -> Value {
    agent.client.get(&agent.admin_url("/weights")).await.ok()
}

fn asked(tokens: u32) -> Value {
    json!({"text": "the sea", "sampling_params": {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": true}})
}

/// What is generated, and by which weights.
async fn generated(agent: &Agent) -> (String, Value) {
    let answer = agent.client.post(&agent.url("/generate"), &asked(24)).await;
    said(&answer.ok())
}

fn said(answer: &Value) -> (String, Value) {
    let version = answer["meta_info"]["weight_version"].as_str().unwrap();
    (version.to_owned(), answer["output_ids"].clone())
}

#[tokio::test]
async fn weights_change_once_under_load_and_no_request_fails() {
    let agent = Arc::new(Agent::start(&["--weight-version", "one"]).await);
    let other = other_weights();
    let first = generated(&agent).await;
    let ends = Arc::new(AtomicBool::new(false));
    let client = |(agent, ends): (Arc<Agent>, Arc<AtomicBool>)| async move {
        let mut all = Vec::new();
        while !ends.load(Ordering::Relaxed) {
            all.push(generated(&agent).await);
        }
        all
    };
    let clients = [(); CLIENTS].map(|()| tokio::spawn(client((agent.clone(), ends.clone()))));
    tokio::time::sleep(Duration::from_millis(100)).await;
    let body = json!({"model_path": text(other.path()), "weight_version": "two"});
    let updated = update(&agent, body).await.ok();
    assert_eq!(updated["success"], true, "{updated}");
    let second = generated(&agent).await;
    ends.store(true, Ordering::Relaxed);
    assert_eq!((first.0.as_str(), second.0.as_str()), ("one", "two"));
    assert_ne!(first.1, second.1);
    for client in clients {
        let all = client.await.unwrap();
        let changes = all.iter().position(|answer| answer.0 == "two").unwrap();
        assert!(all[..changes].iter().all(|answer| *answer == first));
        assert!(all[changes..].iter().all(|answer| *answer == second));
    }
    let status = status(&agent).await;
    assert_eq!(status["serving"]["weight_version"], "two");
    assert_eq!(status["phase"], "serving");
    let info = agent.client.get(&agent.url("/model_info")).await.ok();
    assert_eq!(info["model_path"], text(other.path()));
}

#[tokio::test]
async fn both_sides_of_a_pair_go_on_with_other_weights() {
    let (prefill, decode) = tokio::join!(start("prefill"), start("decode"));
    let other = other_weights();
    let whole = Agent::start(&["--model-path", text(other.path())]).await;
    let pair = async |room: u64| {
        let mut body = asked(24);
        body["bootstrap_host"] = json!("127.0.0.1");
        body["bootstrap_port"] = json!(prefill.bootstrap_port);
        body["bootstrap_room"] = json!(room);
        let (_, answer) = both_legs(&prefill, &decode, "/generate", &body).await;
        said(&answer)
    };
    let before = pair(1).await;
    for (round, path) in [other.path(), &tiny_model(), other.path()]
        .into_iter()
        .enumerate()
    {
        let body = json!({"model_path": text(path), "weight_version": format!("round {round}")});
        let (a, b) = tokio::join!(update(&prefill, body.clone()), update(&decode, body));
        assert_eq!((a.status, b.status), (200, 200), "{:?}", b.body);
        let after = pair(10 + round as u64).await;
        assert_eq!(after.0, format!("round {round}"));
        assert_eq!(after.1 == before.1, round == 1);
    }
    assert_eq!(pair(20).await.1, generated(&whole).await.1);
}

#[tokio::test]
async fn what_cannot_take_the_weights_place_is_refused_and_changes_nothing() {
    let agent = Agent::start(&[]).await;
    let before = generated(&agent).await;
    let refused = async |body: Value| {
        let answer = update(&agent, body).await;
        assert_eq!(answer.status, 400, "{:?}", answer.body);
        answer.json()
    };
    let missing = refused(json!({"model_path": "/no/such/model"})).await;
    let message = missing["message"].as_str().unwrap();
    assert!(message.contains("/no/such/model"), "{message}");
    let status = status(&agent).await;
    assert_eq!(
        status["failed"]["checkpoint"]["model_path"],
        "/no/such/model"
    );
    assert_eq!(status["phase"], "serving");

    let truncated = other_weights();
    let weights = truncated.path().join("model.safetensors");
    fs::File::options()
        .write(true)
        .open(&weights)
        .and_then(|file| file.set_len(100_000))
        .unwrap();
    let said = refused(json!({"model_path": text(truncated.path())})).await;
    let message = said["message"].as_str().unwrap();
    assert!(message.contains("truncated or corrupt"), "{message}");

    let network = tiny_model().with_file_name("tiny-qwen3");
    let said = refused(json!({"model_path": text(&network)})).await;
    let message = said["message"].as_str().unwrap();
    assert!(message.contains("is of another network"), "{message}");
    assert!(message.contains("family"), "{message}");

    for (field, value) in [
        ("flush_cache", json!(false)),
        ("keep_pause", json!(true)),
        ("load_format", json!("dummy")),
        ("drain_timeout_secs", json!(-1.0)),
    ] {
        let mut body = json!({"model_path": text(&tiny_model())});
        body[field] = value;
        assert_eq!(refused(body).await["error"]["param"], field);
    }
    let unknown = update(&agent, json!({"model_path": "m", "shards": 3})).await;
    assert_eq!(unknown.status, 400, "{:?}", unknown.body);
    assert_eq!(generated(&agent).await, before);
}

#[tokio::test]
async fn weights_that_are_only_prepared_do_not_serve() {
    let agent = Agent::start(&[]).await;
    let other = other_weights();
    let before = generated(&agent).await;
    let body = json!({"model_path": text(other.path()), "weight_version": "two", "prepare_only": true, "is_async": true});
    assert_eq!(update(&agent, body.clone()).await.status, 202);
    let prepared = async || loop {
        let status = status(&agent).await;
        if status["phase"] == "serving" {
            return status["prepared"]["weight_version"].clone();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert_eq!(prepared().await, "two");
    assert_eq!(generated(&agent).await, before);
}

/// A request that takes long, and what becomes of it.
fn long(agent: &Agent) -> tokio::task::JoinHandle<Answer> {
    let (client, url) = (agent.client.clone(), agent.url("/generate"));
    tokio::spawn(async move { client.post(&url, &asked(4000)).await })
}

#[tokio::test]
async fn requests_end_with_a_reason_where_weights_do_not_wait_for_them() {
    let agent = Agent::start(&[]).await;
    let other = other_weights();
    for at_once in [
        json!({"abort_all_requests": true}),
        json!({"drain_timeout_secs": 0.05}),
    ] {
        let running = long(&agent);
        agent.wait_in_flight(1).await;
        let mut body = at_once.clone();
        body["model_path"] = json!(text(other.path()));
        assert_eq!(update(&agent, body).await.status, 200);
        let ended = running.await.unwrap();
        assert_eq!(ended.status, 503, "{at_once}: {:?}", ended.body);
        let message = ended.json()["error"]["message"].to_string();
        assert!(message.contains("its weights were replaced"), "{message}");
    }
}

#[tokio::test]
async fn weights_that_vanish_before_they_are_loaded_leave_those_from_before() {
    let agent = Agent::start(&["--weight-version", "one"]).await;
    let other = other_weights();
    let before = generated(&agent).await;
    let running = long(&agent);
    agent.wait_in_flight(1).await;
    let (client, url) = (
        agent.client.clone(),
        agent.admin_url("/update_weights_from_disk"),
    );
    let body = json!({"model_path": text(other.path()), "weight_version": "two"});
    let updating = tokio::spawn(async move { client.post(&url, &body).await });
    while status(&agent).await["phase"] != "draining" {
        assert!(!updating.is_finished());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let waiting = {
        let (client, url) = (agent.client.clone(), agent.url("/generate"));
        tokio::spawn(async move { client.post(&url, &asked(24)).await })
    };
    fs::remove_file(other.path().join("model.safetensors")).unwrap();
    assert_eq!(running.await.unwrap().status, 200);
    let failed = updating.await.unwrap();
    assert_eq!(failed.status, 400, "{:?}", failed.body);
    let message = failed.json()["message"].to_string();
    assert!(
        message.contains("the weights from before serve on"),
        "{message}"
    );
    assert_eq!(said(&waiting.await.unwrap().ok()), before);
    assert_eq!(status(&agent).await["serving"]["weight_version"], "one");
}

#[tokio::test]
async fn the_last_event_of_each_choice_says_whose_weights_answered() {
    let agent = Agent::start(&["--weight-version", "one"]).await;
    for (path, asked) in [
        (
            "/v1/chat/completions",
            json!({"messages": [{"role": "user", "content": "the sea"}]}),
        ),
        ("/v1/completions", json!({"prompt": "the sea"})),
    ] {
        let mut body = asked;
        body["stream"] = json!(true);
        body["max_tokens"] = json!(3);
        body["n"] = json!(2);
        let mut events = agent.client.stream(&agent.url(path), &body).await;
        let events = events.all().await;
        let ends = |event: &&Value| !event["choices"][0]["finish_reason"].is_null();
        let (last, others): (Vec<_>, Vec<_>) = events.iter().partition(ends);
        let version = |event: &&Value| event["metadata"]["weight_version"] == "one";
        assert_eq!(last.len(), 2, "{events:?}");
        assert!(last.iter().all(version), "{last:?}");
        assert!(others.iter().all(|event| event["metadata"].is_null()));
    }
}

#[tokio::test]
async fn a_cordon_and_a_drain_hold_for_the_next_weights() {
    let agent = Agent::start(&[]).await;
    let post = async |path: &str| {
        let url = agent.admin_url(path);
        agent.client.send(Method::POST, &url, "").await.ok()
    };
    let ask = async || {
        let answer = agent.client.post(&agent.url("/generate"), &asked(1)).await;
        answer.status
    };
    let renew = async || {
        let body = json!({"model_path": text(&tiny_model())});
        assert_eq!(update(&agent, body).await.status, 200);
    };
    post("/cordon").await;
    renew().await;
    assert_eq!(ask().await, 503);
    assert_eq!(post("/uncordon").await["state"], "serving");
    assert_eq!(ask().await, 200);
    post("/drain").await;
    renew().await;
    assert_eq!(post("/uncordon").await["state"], "drained");
    assert_eq!(ask().await, 503);
}
