//! The router and its workers know each other by a key, and no worker is reached in the clear that is at `https://`.

use crate::harness::{Running, config, serving};
use crate::mock::{Answer, Mock};
use pd_identity::{Identity, Keyring, Peers};
use pd_protocol::Role;
use pd_protocol::workers::WorkerSpec;
use pd_router::{Config, Server};
use std::fs;
use std::net::SocketAddr;
use tempfile::NamedTempFile;

const OLD: &str = "a-key-of-this-deployment-of-192-bits\n";
const NEW: &str = "the-next-key-of-this-deployment-here\n";
const ANYWHERE: SocketAddr = SocketAddr::V4(std::net::SocketAddrV4::new(
    std::net::Ipv4Addr::LOCALHOST,
    0,
));

fn keyring(keys: &str) -> Keyring {
    Keyring::parse("keys", keys.as_bytes()).unwrap()
}

fn peers(keys: &str) -> Peers {
    Peers::Tls(Identity::new(keyring(keys)))
}

/// A router's configuration with these keys, and their file.
fn keyed(keys: &str, flags: &str) -> (Config, NamedTempFile) {
    let file = NamedTempFile::new().unwrap();
    fs::write(file.path(), keys).unwrap();
    let path = file.path().display();
    (config(&format!("--peer-key-file {path} {flags}")), file)
}

#[tokio::test]
async fn requests_and_streams_pass_between_processes_of_one_key() {
    let prefill = Mock::start_among(peers(OLD), Role::Prefill, ANYWHERE).await;
    let decode = Mock::start_among(peers(OLD), Role::Decode, ANYWHERE).await;
    let (config, _file) = keyed(OLD, "");
    let running = Running::start(config, &[&prefill, &decode]).await;
    let body = format!(r#"{{"text": "{}"}}"#, "long ".repeat(100_000));
    decode.answer(Answer::Json(body.clone()));
    for _ in 0..3 {
        let reply = running.client.post("/generate", body.clone()).await;
        assert_eq!((reply.status(), reply.text()), (200, &*body));
    }
    assert!(prefill.asked_json(2)["bootstrap_room"].is_u64());
    let stream = r#"{"text": "x", "stream": true}"#;
    let piece = |text: &str| format!("data: {{\"text\": \"{text}\"}}\n\n");
    decode.answer(Answer::Events(vec![piece("a"), piece("b")]));
    let reply = running.client.post("/generate", stream).await;
    assert_eq!(reply.text(), piece("a") + &piece("b"));
    decode.answer(Answer::EventsThenBreak(vec![piece("a")]));
    let request = running.client.post("/generate", stream);
    let (reply, ()) = tokio::join!(request, async {
        decode.until(|counts| counts.live == 1).await;
        decode.release();
    });
    assert!(reply.text().contains("it was cut off"), "{}", reply.text());
    running.until_idle().await;
}

#[tokio::test]
async fn a_worker_of_another_key_is_a_failure_of_its_own_that_names_what_to_compare() {
    let worker = Mock::start_among(peers(OLD), Role::Unified, ANYWHERE).await;
    let flags = "--retry-max-retries 0 --cb-failure-threshold 1 --health-failure-threshold 1000 \
                 --no-worker-timeout-secs 0";
    let (config, _file) = keyed(OLD, flags);
    let running = Running::start(config, &[&worker]).await;
    let (id, addr) = (worker.id(), worker.addr);
    worker.stopped().await;
    let _other = Mock::start_among(peers(NEW), Role::Unified, addr).await;
    let reply = running.client.post("/generate", "{}").await;
    assert_eq!(reply.status(), 502, "{}", reply.text());
    let reason = reply.error();
    assert!(
        reason.contains("cannot connect: the peer's certificate is of no key"),
        "{reason}"
    );
    assert!(reason.contains("compare the key files"), "{reason}");
    assert!(running.router.worker(&id).unwrap().circuit_open);
}

#[tokio::test]
async fn a_router_whose_key_the_worker_has_not_reads_that_it_is_refused() {
    // The router verifies both keys, and signs with the one that the worker lacks.
    let worker = Mock::start_among(peers(OLD), Role::Unified, ANYWHERE).await;
    let (config, _file) = keyed(&format!("{NEW}{OLD}"), "");
    let running = Running::start(config, &[]).await;
    running.router.add_worker(worker.spec()).unwrap();
    let is_refused = |reason: String| {
        reason.contains("cannot connect: the peer refused this process's certificate")
    };
    let reason = || running.router.worker(&worker.id()).unwrap().reason;
    running.until(|_| reason().is_some_and(is_refused)).await;
}

#[tokio::test]
async fn a_key_is_replaced_without_a_lost_request() {
    let (Peers::Tls(identity), both) = (peers(OLD), format!("{NEW}{OLD}")) else {
        unreachable!("there is a key");
    };
    let worker = Mock::start_among(Peers::Tls(identity.clone()), Role::Unified, ANYWHERE).await;
    // Each request makes a connection, and with it a handshake.
    worker.answer(Answer::JsonThenClose("{}".to_owned()));
    let (config, file) = keyed(OLD, "--retry-max-retries 0");
    let running = Running::start(config, &[&worker]).await;
    // It knows a router that signs with the new key, and no other.
    let witness = Mock::start_among(peers(NEW), Role::Unified, ANYWHERE).await;
    witness.answer(Answer::JsonThenClose("{}".to_owned()));
    running.router.add_worker(witness.spec()).unwrap();
    let load = async {
        loop {
            let reply = running.client.post("/generate", "{}").await;
            assert_eq!(reply.status(), 200, "{}", reply.text());
        }
    };
    let rotation = async {
        identity.replace(keyring(&format!("{OLD}{NEW}")));
        fs::write(file.path(), &both).unwrap();
        running.until(|router| serving(router) == 2).await;
        let keys = keyring(&both).key_ids();
        for (id, key_use) in keys {
            let labels = format!("key_id=\"{id}\",use=\"{}\"", key_use.as_str());
            let series = format!("pd_router_peer_key_info{{{labels}}}");
            assert_eq!(running.metric(&series).await, 1.0);
        }
        let taken = "pd_router_reloads_total{files=\"peer_keys\",outcome=\"taken\"}";
        assert_eq!(running.metric(taken).await, 1.0);
        identity.replace(keyring(NEW));
        let asked = worker.counts().asked;
        worker.until(|counts| counts.asked > asked + 20).await;
    };
    tokio::select! {
        () = load => {}
        () = rotation => {}
    }
}

#[tokio::test]
async fn a_plain_worker_serves_a_router_with_a_key_and_no_tls_falls_back_to_it() {
    let plain = Mock::start(Role::Unified).await;
    let (config, _file) = keyed(OLD, "");
    let running = Running::start(config, &[&plain]).await;
    assert_eq!(running.client.post("/generate", "{}").await.status(), 200);
    let as_tls = WorkerSpec {
        id: "as-tls".to_owned(),
        url: format!("https://{}", plain.addr),
        ..plain.spec()
    };
    running.router.add_worker(as_tls).unwrap();
    let reason = || running.router.worker("as-tls").unwrap().reason;
    let is_shown = |reason: String| reason.contains("the peer speaks no TLS");
    running.until(|_| reason().is_some_and(is_shown)).await;
}

#[tokio::test]
async fn without_a_usable_key_file_no_worker_of_tls_is_taken() {
    let mut without = config("");
    without.workers = vec![WorkerSpec {
        id: "w".to_owned(),
        role: Role::Unified,
        url: "https://127.0.0.1:1".to_owned(),
        bootstrap_host: None,
        bootstrap_port: None,
        given_kv_compat: None,
    }];
    let refused = Server::bind(without).await.err().unwrap().to_string();
    assert!(refused.contains("give --peer-key-file"), "{refused}");
    let (short, _file) = keyed("short", "");
    let refused = Server::bind(short).await.err().unwrap().to_string();
    assert!(refused.contains("--peer-key-file: "), "{refused}");
    assert!(refused.contains("openssl rand -base64 32"), "{refused}");
}
