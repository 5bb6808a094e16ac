//! Workers with the keys of a deployment: peers are served, strangers are not.

use crate::agent::Agent;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use pd_identity::{Identity, Keyring, Peers};
use serde_json::{Value, json};
use std::fs;
use std::io;
use tempfile::NamedTempFile;
use tokio::net::TcpStream;

const OWN: &str = "a-key-of-this-deployment-of-192-bits\n";
const OTHER: &str = "a-key-of-another-deployment-of-192-bits\n";

fn key_file(keys: &str) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    fs::write(file.path(), keys).unwrap();
    file
}

fn peers(key: &str) -> Peers {
    let keyring = Keyring::parse("keys", key.as_bytes()).unwrap();
    Peers::Tls(Identity::new(keyring))
}

async fn start(keys: &NamedTempFile, flags: &[&str]) -> Agent {
    let path = keys.path().to_str().expect("the path is UTF-8");
    let mut all = vec![
        "--peer-key-file",
        path,
        "--disaggregation-bootstrap-port",
        "0",
    ];
    all.extend(flags);
    Agent::start(&all).await
}

/// Posts as one of `peers`, over a connection of its own.
async fn post(peers: &Peers, agent: &Agent, body: &Value) -> io::Result<(StatusCode, Value)> {
    let address = agent.http.trim_start_matches("http://");
    let stream = TcpStream::connect(address).await?;
    let stream = TokioIo::new(peers.connect(stream).await?);
    let (mut requests, connection) = http1::handshake(stream).await.map_err(io::Error::other)?;
    tokio::spawn(connection);
    let request = Request::post("/generate")
        .header("host", address)
        .body(Full::new(Bytes::from(body.to_string())));
    let answer = requests.send_request(request.unwrap()).await;
    let (head, body) = answer.map_err(io::Error::other)?.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    Ok((head.status, serde_json::from_slice(&body).unwrap()))
}

#[tokio::test]
async fn a_worker_serves_processes_of_its_key_and_no_others() {
    let keys = key_file(OWN);
    let agent = start(&keys, &[]).await;
    let body = json!({"text": "the sea", "sampling_params": {"max_new_tokens": 4}});
    let (status, _) = post(&peers(OWN), &agent, &body).await.unwrap();
    assert_eq!(status, 200);
    let refused = post(&peers(OTHER), &agent, &body).await.unwrap_err();
    let refused = refused.to_string();
    assert!(
        refused.contains("of no key of this deployment"),
        "{refused}"
    );
    assert!(post(&Peers::Plain, &agent, &body).await.is_err());
    // Without TLS, but with its token or from this machine.
    agent.wait_idle().await;
}

#[tokio::test]
async fn a_worker_reports_its_keys_by_their_public_names() {
    let keys = key_file(&format!("{OWN}{OTHER}"));
    let agent = start(&keys, &[]).await;
    let address = agent.http.trim_start_matches("http://");
    let stream = TcpStream::connect(address).await.unwrap();
    let stream = TokioIo::new(peers(OWN).connect(stream).await.unwrap());
    let (mut requests, connection) = http1::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get("/metrics").header("host", address);
    let request = request.body(Full::new(Bytes::new())).unwrap();
    let answer = requests.send_request(request).await.unwrap();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8(body.to_vec()).unwrap();
    for (id, key_use) in Keyring::read(keys.path()).unwrap().key_ids() {
        let labels = format!("key_id=\"{id}\",use=\"{}\"", key_use.as_str());
        let line = format!("pdserve_peer_key_info{{{labels}}} 1\n");
        assert!(text.contains(&line), "no {line} in {text}");
    }
    let refused = "pdserve_reloads_total{files=\"peer_keys\",outcome=\"refused\"} 0\n";
    assert!(text.contains(refused), "{text}");
}

#[tokio::test]
async fn a_pair_of_one_key_gives_the_tokens_of_a_worker_alone() {
    let keys = key_file(OWN);
    let mut body = json!({
        "text": "the sea",
        "sampling_params": {"max_new_tokens": 12, "temperature": 0, "ignore_eos": true},
    });
    let alone = Agent::start(&[]).await;
    let expected = alone.client.post(&alone.url("/generate"), &body).await.ok();
    for backend in ["tcp", "shm"] {
        let flags = |mode| {
            [
                "--disaggregation-mode",
                mode,
                "--disaggregation-transfer-backend",
                backend,
            ]
        };
        let (prefill, decode) = (flags("prefill"), flags("decode"));
        let (prefill, decode) = tokio::join!(start(&keys, &prefill), start(&keys, &decode));
        assert!(!prefill.start_log.contains("WARN"), "{}", prefill.start_log);
        body["bootstrap_host"] = json!("127.0.0.1");
        body["bootstrap_port"] = json!(prefill.bootstrap_port);
        body["bootstrap_room"] = json!(7);
        let router = peers(OWN);
        let legs = tokio::join!(
            post(&router, &prefill, &body),
            post(&router, &decode, &body)
        );
        let (status, answer) = legs.1.unwrap();
        assert_eq!(
            (status, legs.0.unwrap().0),
            (StatusCode::OK, StatusCode::OK),
            "{answer}"
        );
        assert_eq!(answer["text"], expected["text"], "{backend}");
    }
}

#[tokio::test]
async fn a_half_of_a_pair_without_a_key_says_so_once() {
    let flags = ["--disaggregation-mode", "decode"];
    let decode = Agent::start(&flags).await;
    let warnings = decode
        .start_log
        .lines()
        .filter(|line| line.contains("--peer-key-file"));
    assert_eq!(warnings.count(), 1, "{}", decode.start_log);
    assert!(
        !Agent::start(&[])
            .await
            .start_log
            .contains("--peer-key-file")
    );
}
