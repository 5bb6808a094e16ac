//! Facts about whom the client reaches, and how.

use super::*;
use axum::routing::get;
use pd_http::{Limits, ListenerMetrics, serve_peers};
use pd_identity::{Clients, Identity, Keyring};
use std::net::{Ipv4Addr, SocketAddr};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

const LIMIT: Duration = Duration::from_secs(30);

fn mk_peers(key: char) -> Peers {
    let text = key.to_string().repeat(32);
    let keyring = Keyring::parse("keys", text.as_bytes()).expect("a key");
    Peers::Tls(Identity::new(keyring))
}

fn mk_client(peers: Peers) -> HttpClient {
    HttpClient::new("token".to_owned(), peers)
}

/// A server of text at `/`, which ends with the test.
async fn mk_server(peers: Peers) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let routes = axum::Router::new().route("/", get(async || "hello"));
    let served = serve_peers(
        listener,
        (peers, Clients::Required),
        routes,
        (Limits::default(), ListenerMetrics::default()),
        CancellationToken::new(),
    );
    tokio::spawn(served);
    address
}

#[tokio::test]
async fn a_peer_is_reached_with_its_key_and_a_plain_server_without() {
    let client = mk_client(mk_peers('a'));
    for (peers, scheme) in [(mk_peers('a'), "https"), (Peers::Plain, "http")] {
        let address = mk_server(peers).await;
        let url = format!("{scheme}://{address}");
        assert_eq!(client.text(&url, LIMIT).await.unwrap(), "hello", "{url}");
        assert!(client.probe(&format!("{url}/"), LIMIT).await, "{url}");
        assert!(!client.probe(&format!("{url}/none"), LIMIT).await, "{url}");
    }
}

#[tokio::test]
async fn nothing_falls_back_and_each_refusal_says_what_lacks() {
    let address = mk_server(mk_peers('a')).await;
    let https = format!("https://{address}");
    for (peers, says) in [
        (mk_peers('b'), "key"),
        (Peers::Plain, "the keys of its deployment are not known"),
    ] {
        let client = mk_client(peers);
        let error = client.text(&https, LIMIT).await.unwrap_err().to_string();
        assert!(error.starts_with(&https) && error.contains(says), "{error}");
        assert!(!client.probe(&https, LIMIT).await);
    }
    let plain = mk_client(mk_peers('a'));
    let plain = plain.text(&format!("http://{address}"), LIMIT).await;
    assert!(plain.is_err(), "a key is not asked for");
}
