//! The admin API: its answers are acknowledgements.

use crate::harness::{Running, config, serving};
use crate::mock::{Answer, Mock};
use http::Method;
use pd_protocol::Role;
use pd_protocol::workers::{WorkerList, WorkerState, WorkerStatus};

#[tokio::test]
async fn a_worker_is_added_cordoned_uncordoned_and_removed() {
    let running = Running::start(config("--no-worker-timeout-secs 0"), &[]).await;
    let worker = Mock::start(Role::Unified).await;
    let spec = serde_json::to_vec(&worker.spec()).unwrap();
    let status = |reply: crate::client::Reply| -> WorkerStatus {
        assert_eq!(reply.status(), 200, "{}", reply.text());
        serde_json::from_slice(&reply.body).unwrap()
    };
    status(running.admin.post("/workers", spec.clone()).await);
    status(running.admin.post("/workers", spec).await);
    running.until(|router| serving(router) == 1).await;
    let list: WorkerList =
        serde_json::from_slice(&running.admin.get("/workers").await.body).unwrap();
    assert_eq!(list.workers[0].kv_compat.as_deref(), Some("x"));

    let path = format!("/workers/{}", worker.id());
    worker.answer(Answer::EventsThenHang(vec!["data: {}\n\n".to_owned()]));
    let stream = running.client.open("/generate", r#"{"stream":true}"#).await;
    let cordoned = status(running.admin.post(&format!("{path}/cordon"), "").await);
    assert_eq!(
        (cordoned.state, cordoned.in_flight),
        (WorkerState::Cordoned, 1)
    );
    assert_eq!(running.client.post("/generate", "{}").await.status(), 503);
    assert_eq!(worker.counts().live, 1);

    let back = status(running.admin.post(&format!("{path}/uncordon"), "").await);
    assert_eq!(back.state, WorkerState::Serving);
    drop(stream);
    let removed = running.admin.call(Method::DELETE, &path, &[], "").await;
    assert_eq!(status(removed).spec, worker.spec());
    assert_eq!(running.admin.get(&path).await.status(), 404);
}

#[tokio::test]
async fn a_worker_named_by_its_url_is_reached_by_it() {
    let running = Running::start(config(""), &[]).await;
    let worker = Mock::start(Role::Unified).await;
    let mut spec = worker.spec();
    spec.id = spec.url.clone();
    running.router.add_worker(spec).unwrap();
    let path = format!("/workers/http%3A%2F%2F127.0.0.1%3A{}", worker.addr.port());
    assert_eq!(running.admin.get(&path).await.status(), 200);
}

#[tokio::test]
async fn bad_admin_requests_are_refused_with_a_reason() {
    let running = Running::start(config(""), &[]).await;
    let admin = &running.admin;
    let https = r#"{"id":"a","role":"prefill","url":"https://a:1"}"#;
    let reply = admin.post("/workers", https).await;
    assert_eq!(reply.status(), 400);
    assert!(reply.error().contains("http://"));
    let reply = admin
        .post("/workers", r#"{"id":"a","role":"boss","url":"http://a:1"}"#)
        .await;
    assert_eq!(reply.status(), 422);
    assert!(reply.error().contains("boss"));
    assert_eq!(admin.post("/workers", "{").await.status(), 400);
    assert_eq!(admin.post("/workers/none/cordon", "").await.status(), 404);
    assert_eq!(admin.get("/timeline/7").await.status(), 404);
    for room in ["0", "-1", "x", "9223372036854775808"] {
        assert_eq!(admin.get(&format!("/timeline/{room}")).await.status(), 400);
    }
}

#[tokio::test]
async fn the_admin_api_opens_to_its_token_only() {
    let mut config = config("");
    config.admin_token = Some("t".to_owned().into());
    let running = Running::start(config, &[]).await;
    let get = |headers: &'static [(&'static str, &'static str)]| {
        let admin = running.admin.clone();
        async move {
            admin
                .call(Method::GET, "/workers", headers, "")
                .await
                .status()
        }
    };
    assert_eq!(get(&[]).await, 401);
    assert_eq!(get(&[("authorization", "Bearer x")]).await, 401);
    assert_eq!(get(&[("authorization", "Bearer t")]).await, 200);
}

#[tokio::test]
async fn the_admin_api_is_not_on_the_clients_port() {
    let running = Running::start(config(""), &[]).await;
    assert_eq!(running.client.get("/workers").await.status(), 404);
}
