//! Whom the HTTP API of a loading worker answers, and whom it refuses.

use crate::http::api;
use crate::service::tests::mk_spec;
use crate::service::{App, AppSpec};
use axum::body::Body;
use http::{Request, StatusCode, header};
use pd_http::ClientPeer;
use pd_identity::{Identity, Keyring, PeerId, Peers};
use pd_protocol::Secret;
use std::sync::Arc;
use tower::ServiceExt;

fn mk_identity() -> Identity {
    let keyring = Keyring::parse("keys", b"a-key-of-this-deployment-of-192-bits");
    Identity::new(keyring.expect("a key"))
}

/// What an API over these peers answers to a request of `peer` that carries `bearer`.
async fn status(peers: Peers, key: Option<&str>, peer: Option<PeerId>, path: &str) -> StatusCode {
    let app = App::new(AppSpec { peers, ..mk_spec() });
    let request = Request::get(path)
        .header(header::AUTHORIZATION, "Bearer right")
        .extension(ClientPeer(peer))
        .body(Body::empty());
    let api = api(Arc::new(app), key.map(|key| Secret::from(key.to_owned())));
    let answer = api.oneshot(request.expect("a request")).await;
    answer.expect("an API answers").status()
}

const LOADING: StatusCode = StatusCode::SERVICE_UNAVAILABLE;
const REFUSED: StatusCode = StatusCode::UNAUTHORIZED;

#[tokio::test]
async fn with_a_key_strangers_read_health_and_metrics_and_nothing_else() {
    let identity = mk_identity();
    for (path, of_strangers, of_peers) in [
        ("/health", LOADING, LOADING),
        ("/metrics", StatusCode::OK, StatusCode::OK),
        ("/health_generate", REFUSED, LOADING),
        ("/server_info", REFUSED, LOADING),
        ("/v1/models", REFUSED, LOADING),
        ("/flush_cache", REFUSED, LOADING),
        ("/nowhere", REFUSED, StatusCode::NOT_FOUND),
    ] {
        let of = async |peer| status(Peers::Tls(identity.clone()), None, peer, path).await;
        assert_eq!(of(None).await, of_strangers, "{path}");
        assert_eq!(of(Some(identity.peer_id())).await, of_peers, "{path}");
    }
}

#[tokio::test]
async fn without_a_key_no_client_is_asked_for_one() {
    for path in ["/health", "/health_generate", "/server_info"] {
        assert_eq!(
            status(Peers::Plain, None, None, path).await,
            LOADING,
            "{path}"
        );
    }
}

#[tokio::test]
async fn a_peer_presents_the_api_key_too() {
    let identity = mk_identity();
    let peer = Some(identity.peer_id());
    for (path, key, expected) in [
        ("/server_info", "right", LOADING),
        ("/server_info", "another", REFUSED),
        ("/health_generate", "another", LOADING),
    ] {
        let answer = status(Peers::Tls(identity.clone()), Some(key), peer, path).await;
        assert_eq!(answer, expected, "{path} {key}");
    }
}
