//! Only workers that are well, and what they are registered as, get requests.

use crate::harness::{Running, config, serving};
use crate::mock::Mock;
use pd_protocol::Role;
use pd_protocol::workers::WorkerState;
use serde_json::json;

#[tokio::test]
async fn a_worker_that_is_gone_leaves_the_fleet_and_comes_back_with_its_new_identity() {
    let worker = Mock::start(Role::Unified).await;
    let flags = "--health-failure-threshold 1 --health-success-threshold 1 \
                 --no-worker-timeout-secs 0";
    let running = Running::start(config(flags), &[&worker]).await;
    let (id, addr) = (worker.id(), worker.addr);
    worker.stop();
    drop(worker);
    let reply = running.client.post("/generate", "{}").await;
    assert!(matches!(reply.status(), 502 | 503), "{}", reply.text());
    running.until(|router| serving(router) == 0).await;
    let reason = running.router.worker(&id).unwrap().reason.unwrap();
    assert!(reason.contains("/health"), "{reason}");

    let successor = Mock::start_at(Role::Unified, addr).await;
    successor.set_info("boot_id", json!("boot-2"));
    running.until(|router| serving(router) == 1).await;
    let boot_id = || running.router.worker(&id).unwrap().boot_id;
    running
        .until(|_| boot_id().as_deref() == Some("boot-2"))
        .await;
    assert_eq!(running.client.post("/generate", "{}").await.status(), 200);
}

#[tokio::test]
async fn a_worker_that_says_it_is_unwell_is_not_used() {
    let worker = Mock::start(Role::Unified).await;
    worker.set_healthy(false);
    let running = Running::start(config(""), &[]).await;
    running.router.add_worker(worker.spec()).unwrap();
    let reason = || running.router.worker(&worker.id()).unwrap().reason;
    let is_shown = || reason().is_some_and(|reason| reason.contains("/health answered 503"));
    running.until(|_| is_shown()).await;
    assert_eq!(running.client.get("/ready").await.status(), 503);
    worker.set_healthy(true);
    running.until(|router| serving(router) == 1).await;
}

#[tokio::test]
async fn a_worker_of_another_role_is_not_used() {
    let worker = Mock::start(Role::Unified).await;
    worker.set_info("disaggregation_mode", json!("decode"));
    let running = Running::start(config(""), &[]).await;
    running.router.add_worker(worker.spec()).unwrap();
    let status = || running.router.worker(&worker.id()).unwrap();
    let is_shown = || {
        status()
            .reason
            .is_some_and(|reason| reason.contains("mode decode"))
    };
    running.until(|_| is_shown()).await;
    assert_eq!(status().state, WorkerState::Unready);
}

#[tokio::test]
async fn what_a_worker_is_comes_from_the_first_path_that_names_a_model() {
    let sglang = json!({"served_model_name": "m", "disaggregation_mode": "null"});
    let list = json!({"object": "list", "data": [{"id": "m", "max_model_len": 4096}]});
    for (path, info) in [("/get_server_info", sglang), ("/v1/models", list)] {
        let worker = Mock::start(Role::Unified).await;
        worker.say_at(path, info);
        let running = Running::start(config(""), &[&worker]).await;
        let reply = running
            .client
            .post("/v1/completions", r#"{"model": "m", "prompt": "a"}"#);
        assert_eq!(reply.await.status(), 200, "{path}");
    }
}

#[tokio::test]
async fn sglangs_context_is_that_of_its_models() {
    let worker = Mock::start(Role::Unified).await;
    worker.say_at(
        "/server_info",
        json!({"served_model_name": "m", "context_length": null}),
    );
    worker.list_models(json!({"data": [{"id": "m", "max_model_len": 4096}]}));
    let running = Running::start(config(""), &[&worker]).await;
    let models = running.client.get("/v1/models").await;
    assert!(
        models.text().contains("\"max_model_len\":4096"),
        "{}",
        models.text()
    );
}

#[tokio::test]
async fn a_worker_without_a_model_is_not_used() {
    let worker = Mock::start(Role::Unified).await;
    worker.say_at("/server_info", json!({}));
    let running = Running::start(config(""), &[]).await;
    running.router.add_worker(worker.spec()).unwrap();
    let reason = || running.router.worker(&worker.id()).unwrap().reason;
    let is_shown = || reason().is_some_and(|reason| reason.contains("it names no model"));
    running.until(|_| is_shown()).await;
    assert_eq!(running.client.get("/ready").await.status(), 503);
    worker.set_info("served_model_name", json!("m"));
    running.until(|router| serving(router) == 1).await;
}

#[tokio::test]
async fn of_an_engine_that_is_busy_only_life_is_asked() {
    let worker = Mock::start(Role::Unified).await;
    worker.say_at("/server_info", json!({"served_model_name": "m"}));
    worker.set_pings(true);
    let flags = "--health-check-interval-secs 1 --health-failure-threshold 1";
    let running = Running::start(config(flags), &[&worker]).await;
    // As behind a long prompt, but at once.
    worker.set_healthy(false);
    worker.say_at("/nowhere", json!({}));
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(serving(&running.router), 1);
    worker.set_pings(false);
    running.until(|router| serving(router) == 0).await;
    let reason = running.router.worker(&worker.id()).unwrap().reason.unwrap();
    assert!(reason.contains("/health answered 503"), "{reason}");
}
