//! What rustls needs for handshakes with the keys and the certificate of the moment.

use crate::certificates::PEER_NAME;
use crate::keyring::Keyring;
use rcgen::KeyPair;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{cipher_suite, default_provider};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::time_provider::TimeProvider;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::sync::{Arc, LazyLock};

/// Ciphers of the strength of our curves, the faster one first.
static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
    Arc::new(CryptoProvider {
        cipher_suites: vec![
            cipher_suite::TLS13_AES_128_GCM_SHA256,
            cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        ],
        ..default_provider()
    })
});

pub(crate) struct Configs {
    /// For a server whose clients must have a certificate.
    pub(crate) required: Arc<ServerConfig>,
    /// For a server whose clients may have none.
    pub(crate) optional: Arc<ServerConfig>,
    pub(crate) client: Arc<ClientConfig>,
}

impl Configs {
    pub(crate) fn new(
        keyring: &Keyring,
        leaf: &KeyPair,
        clock: &Arc<dyn TimeProvider>,
        now: UnixTime,
    ) -> Self {
        let mut roots = RootCertStore::empty();
        for authority in keyring.authorities() {
            let added = roots.add(authority.certificate());
            added.expect("an authority's certificate has its form");
        }
        let roots = Arc::new(roots);
        let signer = keyring.authorities().next().expect("a keyring has a key");
        let chain = vec![signer.issue(leaf, now)];
        let own = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(leaf.serialize_der()));
        let own = CertifiedKey::from_der(chain, own, &PROVIDER);
        let own = SingleCertAndKey::from(own.expect("a leaf has its form"));
        let own = Arc::new(own);

        let clients =
            || WebPkiClientVerifier::builder_with_provider(roots.clone(), PROVIDER.clone());
        let required = clients().build().expect("there is an authority");
        let optional = clients().allow_unauthenticated().build();
        Self {
            required: server(required, &own, clock),
            optional: server(optional.expect("there is an authority"), &own, clock),
            client: client(roots.clone(), &own, clock),
        }
    }
}

pub(crate) fn peer_name() -> ServerName<'static> {
    ServerName::try_from(PEER_NAME).expect("a DNS name")
}

// No session is resumed: it would outlive a key that has been removed.

fn server(
    clients: Arc<dyn ClientCertVerifier>,
    own: &Arc<SingleCertAndKey>,
    clock: &Arc<dyn TimeProvider>,
) -> Arc<ServerConfig> {
    let mut config = ServerConfig::builder_with_details(PROVIDER.clone(), clock.clone())
        .with_protocol_versions(&[&TLS13])
        .expect("the provider has ciphers of TLS 1.3")
        .with_client_cert_verifier(clients)
        .with_cert_resolver(own.clone());
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Arc::new(config)
}

fn client(
    roots: Arc<RootCertStore>,
    own: &Arc<SingleCertAndKey>,
    clock: &Arc<dyn TimeProvider>,
) -> Arc<ClientConfig> {
    let servers = WebPkiServerVerifier::builder_with_provider(roots, PROVIDER.clone()).build();
    let mut config = ClientConfig::builder_with_details(PROVIDER.clone(), clock.clone())
        .with_protocol_versions(&[&TLS13])
        .expect("the provider has ciphers of TLS 1.3")
        .with_webpki_verifier(servers.expect("there is an authority"))
        .with_client_cert_resolver(own.clone());
    config.resumption = Resumption::disabled();
    Arc::new(config)
}
