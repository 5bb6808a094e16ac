//! Servers whose clients prove that they have a key of the deployment.

use super::*;
use axum::Extension;
use pd_http::{ClientPeer, ListenerMetrics, serve_peers};
use pd_identity::{Clients, Identity, Keyring, Peers, Stream};

const OWN: &str = "a-key-of-this-deployment-of-192-bits";
const OTHER: &str = "a-key-of-another-deployment-of-192-bits";

fn mk_peers(key: &str) -> Peers {
    let keyring = Keyring::parse("keys", key.as_bytes()).expect("a key");
    Peers::Tls(Identity::new(keyring))
}

async fn who(Extension(ClientPeer(peer)): Extension<ClientPeer>) -> String {
    peer.map_or_else(|| "a stranger".to_owned(), |peer| peer.to_string())
}

async fn start_peers(peers: Peers, clients: Clients, limits: Limits) -> Server {
    let app = routes().route("/who", get(who));
    start_with(|listener, end| {
        serve_peers(
            listener,
            (peers, clients),
            app,
            (limits, ListenerMetrics::default()),
            end,
        )
    })
    .await
}

// === impl Server ===

impl Server {
    async fn meet(&self, peers: &Peers) -> Stream<TcpStream> {
        let met = peers.connect(self.connect().await).await;
        met.expect("a handshake")
    }
}

async fn asked(stream: &mut Stream<TcpStream>, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n");
    let written = stream.write_all(request.as_bytes()).await;
    written.expect("a request");
    stream.flush().await.expect("a request");
    answer(stream).await
}

#[tokio::test]
async fn a_handler_knows_the_process_that_asks() {
    let server = start_peers(mk_peers(OWN), Clients::Required, limits()).await;
    let client = mk_peers(OWN);
    let mut stream = server.meet(&client).await;
    let id = client.identity().expect("an identity").peer_id();
    assert!(asked(&mut stream, "/who").await.ends_with(&id.to_string()));
    assert!(asked(&mut stream, "/").await.ends_with("yes"));
}

#[tokio::test]
async fn without_a_key_all_are_served_and_none_is_known() {
    for clients in [Clients::Required, Clients::Optional] {
        let server = start_peers(Peers::Plain, clients, limits()).await;
        let mut stream = server.meet(&Peers::Plain).await;
        assert!(asked(&mut stream, "/who").await.ends_with("a stranger"));
    }
}

#[tokio::test]
async fn the_holder_of_another_key_and_who_speaks_no_tls_are_refused() {
    let server = start_peers(mk_peers(OWN), Clients::Optional, limits()).await;
    let other = mk_peers(OTHER).connect(server.connect().await).await;
    let refused = other.expect_err("it is of another deployment").to_string();
    assert!(
        refused.contains("of no key of this deployment"),
        "{refused}"
    );
    let plain = rest(&mut server.ask(GET).await).await;
    assert!(!plain.contains("HTTP"), "{plain}");
    assert!(
        asked(&mut server.meet(&mk_peers(OWN)).await, "/")
            .await
            .ends_with("yes")
    );
}

#[tokio::test]
async fn an_unfinished_handshake_and_silence_after_one_are_closed() {
    let server = start_peers(mk_peers(OWN), Clients::Required, limits()).await;
    let mut silent = server.connect().await;
    // As a TLS record of 512 bytes begins.
    let mut half = server.connect().await;
    half.write_all(&[22, 3, 1, 2, 0, 1])
        .await
        .expect("a record's head");
    let mut met = server.meet(&mk_peers(OWN)).await;
    assert_eq!(rest(&mut silent).await, "");
    assert_eq!(rest(&mut half).await, "");
    assert_eq!(rest(&mut met).await, "");
}

#[tokio::test]
async fn a_crowd_that_shakes_no_hands_keeps_no_peer_out() {
    let few = Limits {
        connections: 8,
        head: SOON * 6,
        idle: SOON * 6,
        ..limits()
    };
    let server = start_peers(mk_peers(OWN), Clients::Required, few).await;
    let mut crowd = Vec::new();
    for _ in 0..64 {
        let mut stranger = server.connect().await;
        // Some are closed already.
        let _ = stranger.write_all(&[22, 3, 1, 2, 0]).await;
        crowd.push(stranger);
    }
    let client = mk_peers(OWN);
    let mut met = loop {
        // Those of the crowd that were let in are given a moment to go on.
        if let Ok(met) = client.connect(server.connect().await).await {
            break met;
        }
    };
    assert!(asked(&mut met, "/").await.ends_with("yes"));
}

#[tokio::test]
async fn the_end_waits_for_answers_and_not_for_handshakes() {
    let server = start_peers(mk_peers(OWN), Clients::Required, Limits::default()).await;
    let _silent = server.connect().await;
    let mut served = server.meet(&mk_peers(OWN)).await;
    let slow = asked(&mut served, "/slow");
    let end = async {
        sleep(SHORT / 3).await;
        server.end.cancel();
    };
    let (slow, ()) = tokio::join!(slow, end);
    assert!(slow.ends_with("slow"), "{slow}");
    // Less than a handshake may take.
    let ended = timeout(SOON / 2, server.task).await;
    ended.expect("an end").expect("no panic");
}
