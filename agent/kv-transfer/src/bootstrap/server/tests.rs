//! Facts about the bootstrap server, over HTTP.

use super::*;
use crate::bootstrap::client::BootstrapClient;
use crate::bootstrap::table::tests::mk_registration;
use crate::config::BootstrapAddr;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use pd_protocol::layout::RankId;

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

fn mk_server() -> (BootstrapServer, BootstrapAddr) {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let server = BootstrapServer::start(listener, &Peers::Plain, "boot-1", "compat-1").unwrap();
    let addr = BootstrapAddr {
        host: "127.0.0.1".to_owned(),
        port: server.local_addr().port(),
    };
    (server, addr)
}

async fn call(addr: &BootstrapAddr, method: &str, path: &str, body: &str) -> (u16, String) {
    let client = Client::builder(TokioExecutor::new()).build_http();
    let request = http::Request::builder()
        .method(method)
        .uri(format!("http://{addr}{path}"))
        .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))
        .unwrap();
    let answer = client.request(request).await.unwrap();
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn a_registered_rank_is_found_with_its_process() {
    let (_server, addr) = mk_server();
    let client = BootstrapClient::new(Peers::Plain, PATIENCE);
    let registration = mk_registration(1, 0, 4711);
    client
        .register(&addr, &registration, "boot-1")
        .await
        .unwrap();
    let topology = client.topology(&addr).await.unwrap();
    assert_eq!(topology.info.page_size, 16);
    assert_eq!(topology.boot_id.as_deref(), Some("boot-1"));
    assert_eq!(topology.kv_compat.as_deref(), Some("compat-1"));
    let rank = client.rank(&addr, RankId::default()).await.unwrap();
    assert_eq!((rank.rank_ip.as_str(), rank.rank_port), ("127.0.0.1", 4711));
}

#[tokio::test]
async fn statuses_are_those_of_the_reference() {
    let (_server, addr) = mk_server();
    let all = "/route?prefill_dp_rank=-1&prefill_cp_rank=-1&target_tp_rank=-1&target_pp_rank=-1";
    let other = "/route?prefill_dp_rank=0&prefill_cp_rank=0&target_tp_rank=7&target_pp_rank=0";
    assert_eq!(
        call(&addr, "GET", "/health", "").await,
        (200, "OK".to_owned())
    );
    assert_eq!(
        call(&addr, "GET", all, "").await,
        (
            503,
            "Prefill server not fully registered yet (0 workers registered).".to_owned()
        )
    );
    assert_eq!(
        call(&addr, "GET", "/route?x=1", "").await,
        (400, "Missing inputs for bootstrap server.".to_owned())
    );
    assert_eq!(call(&addr, "DELETE", "/route", "").await.0, 405);
    let body = serde_json::to_string(&mk_registration(1, 0, 1)).unwrap();
    assert_eq!(
        call(&addr, "PUT", "/route", &body).await,
        (200, "OK".to_owned())
    );
    assert_eq!(call(&addr, "GET", all, "").await.0, 200);
    assert_eq!(call(&addr, "GET", other, "").await.0, 404);
}

#[tokio::test]
async fn a_conflicting_layout_is_a_400_with_both_values() {
    let (_server, addr) = mk_server();
    let mut body = serde_json::to_value(mk_registration(2, 0, 1)).unwrap();
    assert_eq!(call(&addr, "PUT", "/route", &body.to_string()).await.0, 200);
    body["attn_tp_rank"] = 1.into();
    body["kv_cache_dtype"] = "bfloat16".into();
    let (status, message) = call(&addr, "PUT", "/route", &body.to_string()).await;
    assert_eq!(status, 400);
    assert!(
        message.contains("kv_cache_dtype was \"float32\", now \"bfloat16\""),
        "{message}"
    );
}

#[tokio::test]
async fn a_malformed_body_is_a_400_with_its_place() {
    let (_server, addr) = mk_server();
    let (status, message) = call(&addr, "PUT", "/route", "{\"attn_tp_size\": \"x\"}").await;
    assert_eq!(status, 400);
    assert!(message.contains("line 1 column"), "{message}");
}

#[tokio::test]
async fn what_is_too_large_or_not_there_is_refused_by_name() {
    let (_server, addr) = mk_server();
    let (status, message) = call(&addr, "PUT", "/route", &" ".repeat(BODY_BYTES_MAX + 1)).await;
    assert_eq!(status, 413);
    assert!(message.contains("2097152 bytes"), "{message}");
    let (status, message) = call(&addr, "GET", "/routes", "").await;
    assert_eq!(status, 404);
    assert!(message.contains("no /routes here"), "{message}");
    let answer = call(&addr, "DELETE", "/route", "").await;
    assert_eq!(answer, (405, "/route does not take DELETE".to_owned()));
}

#[tokio::test]
async fn data_parallel_ranks_of_known_rooms_are_answered() {
    let (_server, addr) = mk_server();
    let body = r#"{"bootstrap_room": 7, "dp_rank": 3}"#;
    assert_eq!(call(&addr, "POST", "/register_dp_rank", body).await.0, 200);
    let body = r#"{"bootstrap_rooms": [7, 8]}"#;
    let answer = call(&addr, "POST", "/query_dp_ranks", body).await;
    assert_eq!(answer, (200, r#"{"7":3}"#.to_owned()));
}

#[tokio::test]
async fn a_server_that_is_gone_is_named_within_a_second() {
    let (server, addr) = mk_server();
    server.task.abort();
    drop(server);
    let started = std::time::Instant::now();
    let error = BootstrapClient::new(Peers::Plain, PATIENCE)
        .topology(&addr)
        .await
        .unwrap_err();
    assert!(error.message.contains(&addr.to_string()), "{error}");
    assert!(started.elapsed() < std::time::Duration::from_secs(5));
}

#[tokio::test]
async fn a_server_that_is_frozen_is_given_up_after_a_missed_heartbeat() {
    let frozen = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let addr = BootstrapAddr {
        host: "127.0.0.1".to_owned(),
        port: frozen.local_addr().unwrap().port(),
    };
    let client = BootstrapClient::new(Peers::Plain, std::time::Duration::from_millis(100));
    let error = client.topology(&addr).await.unwrap_err();
    assert!(error.message.contains("is silent"), "{error}");
}

#[tokio::test]
async fn a_server_that_ends_says_so() {
    let (mut server, _) = mk_server();
    server.task.abort();
    let why = server.ended().await;
    assert!(
        why.starts_with("the bootstrap server's task ended"),
        "{why}"
    );
}
