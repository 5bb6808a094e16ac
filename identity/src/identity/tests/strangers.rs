//! Facts about peers that are no process of the deployment.

use super::{exchange, mk_identity, mk_keyring, reason};
use crate::certificates::{Authority, PEER_NAME};
use crate::configs::peer_name;
use crate::{Clients, Identity, Peers, Stream};
use rcgen::{CertificateParams, DnType, IsCa, Issuer, KeyPair, PKCS_ED25519};
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};
use tokio_rustls::{TlsAcceptor, TlsConnector};

type Connected = io::Result<Stream<DuplexStream>>;

fn authority() -> Authority {
    mk_keyring([1]).authorities().next().expect("a key")
}

/// A stranger's certificate, which says what a process's does: signed by itself, or by an authority with the name of ours.
fn mk_forged(issuer: Option<KeyPair>) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
    let key = KeyPair::generate_for(&PKCS_ED25519).expect("a key");
    let named = |name: String| {
        let mut params = CertificateParams::new([PEER_NAME.to_owned()]).expect("a name");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params
    };
    let authority = named(format!("pdserve deployment key {}", authority().id()));
    let certificate = match issuer {
        Some(issuer) => {
            let process = named("process".to_owned());
            process.signed_by(&key, &Issuer::from_params(&authority, issuer))
        }
        None => {
            let mut own = authority;
            own.is_ca = IsCa::ExplicitNoCa;
            own.self_signed(&key)
        }
    };
    (certificate.expect("signed").into(), key.into())
}

fn mk_client(
    version: &'static SupportedProtocolVersion,
    certificate: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(authority().certificate()).expect("a root");
    let provider = Arc::new(default_provider());
    let servers = WebPkiServerVerifier::builder_with_provider(roots.into(), provider.clone());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .expect("a version")
        .with_webpki_verifier(servers.build().expect("a root"));
    match certificate {
        Some((certificate, key)) => config
            .with_client_auth_cert(vec![certificate], key)
            .expect("a pair"),
        None => config.with_no_client_auth(),
    }
}

async fn serve(clients: Clients, client: ClientConfig) -> (Connected, Connected) {
    let (ours, theirs) = duplex(1 << 16);
    let server = Peers::Tls(mk_identity([1]));
    let connector = TlsConnector::from(Arc::new(client));
    let connect = async { Ok(connector.connect(peer_name(), theirs).await?.into()) };
    exchange(server.accept(ours, clients), connect).await
}

async fn ask(client: &Identity, server: ServerConfig) -> (Connected, Connected) {
    let (ours, theirs) = duplex(1 << 16);
    let client = Peers::Tls(client.clone());
    let acceptor = TlsAcceptor::from(Arc::new(server));
    let accept = async { Ok(acceptor.accept(ours).await?.into()) };
    exchange(accept, client.connect(theirs)).await
}

#[tokio::test]
async fn a_client_without_a_certificate_is_refused_where_one_is_required() {
    let (served, connected) = serve(Clients::Required, mk_client(&TLS13, None)).await;
    let reason = reason(served);
    assert!(
        reason.starts_with("the peer presented no certificate"),
        "{reason}"
    );
    assert!(connected.is_err());
}

#[tokio::test]
async fn a_client_without_a_certificate_is_let_in_as_nothing_where_one_is_optional() {
    let (served, connected) = serve(Clients::Optional, mk_client(&TLS13, None)).await;
    assert_eq!(served.unwrap().peer(), None);
    assert!(connected.is_ok());
}

#[tokio::test]
async fn a_certificate_that_only_looks_like_one_of_ours_is_refused_on_either_side() {
    for clients in [Clients::Required, Clients::Optional] {
        for forges_authority in [false, true] {
            let issuer = || forges_authority.then(|| KeyPair::generate_for(&PKCS_ED25519).unwrap());
            let client = mk_client(&TLS13, Some(mk_forged(issuer())));
            let reason = reason(serve(clients, client).await.0);
            assert!(
                reason.contains("is of no key of this deployment"),
                "{reason}"
            );

            let (certificate, key) = mk_forged(issuer());
            let server = ServerConfig::builder_with_provider(default_provider().into())
                .with_protocol_versions(&[&TLS13])
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![certificate], key)
                .unwrap();
            let (_, connected) = ask(&mk_identity([1]), server).await;
            let reason = super::reason(connected);
            assert!(
                reason.contains("is of no key of this deployment"),
                "{reason}"
            );
        }
    }
}

#[tokio::test]
async fn tls_1_2_is_refused() {
    let (served, connected) = serve(Clients::Optional, mk_client(&TLS12, None)).await;
    let reason = reason(served);
    assert!(
        reason.starts_with("the peer does not speak TLS 1.3"),
        "{reason}"
    );
    assert!(connected.is_err());
}

#[tokio::test]
async fn a_session_is_not_resumed() {
    let config = Arc::new(mk_client(&TLS13, None));
    let server = mk_identity([1]);
    for _ in 0..2 {
        let (ours, theirs) = duplex(1 << 16);
        let peers = Peers::Tls(server.clone());
        let connector = TlsConnector::from(config.clone());
        let connect = async { Ok(connector.connect(peer_name(), theirs).await?.into()) };
        let (_, connected) = exchange(peers.accept(ours, Clients::Optional), connect).await;
        let Ok(Stream::Tls(tls)) = connected else {
            panic!("a TLS stream");
        };
        let tokio_rustls::TlsStream::Client(client) = *tls else {
            panic!("a client's stream");
        };
        let (_, connection) = client.get_ref();
        assert_eq!(connection.tls13_tickets_received(), 0);
        assert_eq!(
            connection.handshake_kind(),
            Some(rustls::HandshakeKind::Full)
        );
    }
}

#[tokio::test]
async fn bytes_that_are_no_tls_are_an_error() {
    let peers = Peers::Tls(mk_identity([1]));
    for bytes in [
        &b"GET /metrics HTTP/1.1\r\nhost: agent\r\n\r\n"[..],
        &[0; 4096],
        &[0xff; 4096],
        b"\x16\x03\x01\x00\x05hello",
    ] {
        let (ours, mut theirs) = duplex(1 << 16);
        theirs.write_all(bytes).await.unwrap();
        theirs.shutdown().await.unwrap();
        let reason = reason(peers.accept(ours, Clients::Required).await);
        assert!(reason.starts_with("the peer speaks no TLS"), "{reason}");

        let (ours, mut theirs) = duplex(1 << 16);
        theirs.write_all(bytes).await.unwrap();
        let reason = super::reason(peers.connect(ours).await);
        assert!(reason.starts_with("the peer speaks no TLS"), "{reason}");
    }
}

#[tokio::test]
async fn a_process_with_a_key_and_one_without_do_not_meet() {
    let (ours, theirs) = duplex(1 << 16);
    let keyed = Peers::Tls(mk_identity([1]));
    let (served, connected) = exchange(
        keyed.accept(ours, Clients::Optional),
        Peers::Plain.connect(theirs),
    )
    .await;
    assert!(served.is_err() && connected.is_err());
}

#[tokio::test]
async fn a_peer_that_goes_or_says_nothing_is_an_error() {
    tokio::time::pause();
    let peers = Peers::Tls(mk_identity([1]));
    let (ours, theirs) = duplex(1 << 16);
    drop(theirs);
    let reason = reason(peers.accept(ours, Clients::Required).await);
    assert!(
        reason.starts_with("the peer closed the connection during"),
        "{reason}"
    );

    let (ours, _theirs) = duplex(1 << 16);
    let error = peers.connect(ours).await.expect_err("a limit");
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    let (ours, _theirs) = duplex(1 << 16);
    let error = peers
        .accept(ours, Clients::Optional)
        .await
        .expect_err("a limit");
    assert_eq!(
        error.to_string(),
        "the peer did not finish the handshake within 10 s"
    );
}
