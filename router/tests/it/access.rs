//! Who is let in, and what of that workers see.

use crate::harness::{Running, config};
use crate::mock::Mock;
use http::Method;
use pd_protocol::Role;
use pd_router::Server;
use std::fs;

#[tokio::test]
async fn keys_of_a_folder_open_the_api_and_reach_no_worker() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("team-a"), "ka\n").unwrap();
    let worker = Mock::start(Role::Unified).await;
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
    let worker = Mock::start(Role::Unified).await;
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
    for path in [
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/generate",
        "/tokenize",
        "/v1/detokenize",
    ] {
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

const PAGE: (&str, &str) = ("origin", "https://chat.example.com");

#[tokio::test]
async fn a_listed_page_may_call_with_its_key_and_read_the_answer() {
    let worker = Mock::start(Role::Unified).await;
    let flags = "--api-key k1 --cors-allowed-origins https://chat.example.com http://other:3000";
    let running = Running::start(config(flags), &[&worker]).await;
    let client = &running.client;
    let preflight = [
        PAGE,
        ("access-control-request-method", "POST"),
        (
            "access-control-request-headers",
            "authorization,content-type",
        ),
    ];
    let path = "/v1/chat/completions";
    let reply = client.call(Method::OPTIONS, path, &preflight, "").await;
    assert_eq!(reply.status(), 204);
    let headers = reply.headers();
    assert_eq!(headers["access-control-allow-origin"], PAGE.1);
    assert_eq!(headers["access-control-allow-headers"], preflight[2].1);
    assert_eq!(headers["access-control-allow-methods"], "GET, POST");
    // The browser must be able to read why it was refused, too.
    for (key, status) in [("Bearer k1", 200), ("Bearer k2", 401)] {
        let headers = [PAGE, ("authorization", key)];
        let reply = client.call(Method::POST, path, &headers, "{}").await;
        assert_eq!(reply.status(), status);
        assert_eq!(reply.headers()["access-control-allow-origin"], PAGE.1);
        assert_eq!(reply.headers()["vary"], "origin");
        let exposed = &reply.headers()["access-control-expose-headers"];
        assert!(exposed.to_str().unwrap().contains("x-request-id"));
    }
    let foreign = [("origin", "https://evil.example.com")];
    let reply = client.call(Method::GET, "/health", &foreign, "").await;
    assert!(!reply.headers().contains_key("access-control-allow-origin"));
}

#[tokio::test]
async fn any_page_may_call_where_keys_are_asked_for_and_else_those_of_this_machine() {
    let allowed = async |flags: &str, origin: &str| {
        let running = Running::start(config(flags), &[]).await;
        let headers = [("origin", origin)];
        let reply = running
            .client
            .call(Method::GET, "/health", &headers, "")
            .await;
        let allowed = reply.headers().get("access-control-allow-origin");
        allowed.map(|value| value.to_str().unwrap().to_owned())
    };
    let local = "http://localhost:3000";
    assert_eq!(allowed("--api-key k1", PAGE.1).await.as_deref(), Some("*"));
    assert_eq!(allowed("", local).await.as_deref(), Some(local));
    assert_eq!(allowed("", PAGE.1).await, None);
    let open = "--cors-allowed-origins *";
    assert_eq!(allowed(open, PAGE.1).await.as_deref(), Some("*"));
    assert_eq!(allowed("--cors-allowed-origins", local).await, None);
}

#[tokio::test]
async fn a_request_is_named_by_the_header_that_was_chosen_also_where_it_is_refused() {
    let worker = Mock::start(Role::Unified).await;
    let flags = config("--request-id-headers x-trace-id x-other");
    let running = Running::start(flags, &[&worker]).await;
    let client = &running.client;
    let headers = [("x-trace-id", "t1"), ("x-request-id", "r1")];
    for body in ["{}", "{"] {
        let reply = client.call(Method::POST, "/generate", &headers, body).await;
        assert_eq!(reply.headers()["x-request-id"], "t1", "{body}");
        assert_eq!(reply.headers()["x-trace-id"], "t1", "{body}");
    }
    assert_eq!(worker.asked()[0].headers["x-request-id"], "t1");
}
