//! Who is let in, and what of that workers see.

use crate::harness::{Running, config};
use crate::mock::Mock;
use http::Method;
use pd_protocol::workers::Role;
use pd_router::server::Server;
use std::fs;

#[tokio::test]
async fn keys_of_a_folder_open_the_api_and_reach_no_worker() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("team-a"), "ka\n").unwrap();
    let worker = Mock::start(Role::Null).await;
    let flags = format!("--api-key-file {}", folder.path().display());
    let running = Running::start(config(&flags), &[&worker]).await;
    let call = async |key: &str| {
        let headers = [("authorization", key)];
        let client = &running.client;
        client.call(Method::POST, "/generate", &headers, "{}").await
    };
    let refused = call("Bearer kb").await;
    assert_eq!(
        (refused.status(), refused.error().contains("kb")),
        (401, false)
    );
    assert_eq!(refused.headers()["www-authenticate"], "Bearer");
    assert_eq!(refused.json()["error"]["code"], "invalid_api_key");
    assert_eq!(worker.counts().asked, 0);
    assert_eq!(call("Bearer ka").await.status(), 200);
    assert!(!worker.asked()[0].headers.contains_key("authorization"));
}

#[tokio::test]
async fn probes_and_scrapers_need_no_key_and_all_else_does() {
    let worker = Mock::start(Role::Null).await;
    let running = Running::start(config("--api-key k1"), &[&worker]).await;
    for path in ["/health", "/liveness", "/ready", "/readiness", "/metrics"] {
        assert_eq!(running.client.get(path).await.status(), 200, "{path}");
    }
    for path in [
        "/v1/models",
        "/v1/models/m",
        "/get_model_info",
        "/server_info",
        "/get_server_info",
        "/flush_cache",
    ] {
        assert_eq!(running.client.get(path).await.status(), 401, "{path}");
    }
    for path in ["/v1/chat/completions", "/v1/completions", "/generate"] {
        let refused = running.client.post(path, "{}").await;
        assert_eq!(refused.status(), 401, "{path}");
    }
    let headers = [("authorization", "Bearer k1")];
    let client = &running.client;
    let info = client.call(Method::GET, "/server_info", &headers, "").await;
    assert_eq!((info.status(), info.text().contains("k1")), (200, false));
}

#[tokio::test]
async fn files_that_cannot_be_used_keep_the_router_from_starting() {
    for (flags, part) in [
        (
            "--api-key-file /nowhere/keys",
            "/nowhere/keys (--api-key-file)",
        ),
        (
            "--tls-cert-path /nowhere/crt --tls-key-path /nowhere/key",
            "/nowhere/crt (--tls-cert-path)",
        ),
    ] {
        let refused = Server::bind(config(flags)).await.err().unwrap().to_string();
        assert!(refused.contains(part), "{refused}");
    }
}
