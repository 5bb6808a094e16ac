//! One process of a deployment: its key pair, the keys of the moment and the certificate that they gave it.

use crate::certificates::{PeerId, RENEWAL};
use crate::configs::{Configs, peer_name};
use crate::follow::follow;
use crate::handshake;
use crate::keyring::{KeyFileError, KeyId, KeyUse, Keyring};
use crate::metrics::KeyInfo;
use parking_lot::RwLock;
use prometheus::core::Collector;
use rcgen::{KeyPair, PKCS_ED25519, PublicKeyData};
use rustls::pki_types::UnixTime;
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

/// A process among those that share its keys. Clones are the same process.
#[derive(Clone)]
pub struct Identity {
    shared: Arc<Shared>,
}

/// What does not keep an identity alive.
pub(crate) struct WeakIdentity(Weak<Shared>);

/// Whom a server lets in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    /// Those with a key of the deployment.
    Required,
    /// Those without a certificate as well. One with another key's is refused all the same.
    Optional,
}

struct Shared {
    /// This process's own, for its life.
    leaf: KeyPair,
    peer_id: PeerId,
    clock: Arc<dyn TimeProvider>,
    state: RwLock<State>,
}

struct State {
    keyring: Keyring,
    issued: UnixTime,
    configs: Arc<Configs>,
}

// === impl Identity ===

impl Identity {
    /// A new process with a key pair of its own.
    pub fn new(keyring: Keyring) -> Self {
        Self::with_clock(keyring, Arc::new(DefaultTimeProvider))
    }

    /// As [`Identity::new`]; `clock` dates this process's certificates and judges those of peers.
    pub fn with_clock(keyring: Keyring, clock: Arc<dyn TimeProvider>) -> Self {
        let leaf = KeyPair::generate_for(&PKCS_ED25519).expect("the system gives random bytes");
        let state = State::new(keyring, &leaf, &clock);
        let shared = Shared {
            peer_id: PeerId::of(&leaf.subject_public_key_info()),
            leaf,
            clock,
            state: RwLock::new(state),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// A new process with the keys of a file, and a future that follows the file until the identity is dropped: spawn
    /// it. It keeps the last usable keys; `changed` hears of each change whether it could be used.
    ///
    /// # Errors
    /// Why the file cannot be used.
    pub fn follow(
        file: impl Into<PathBuf>,
        changed: impl Fn(bool) + Send + 'static,
    ) -> Result<(Self, impl Future<Output = ()> + Send + 'static), KeyFileError> {
        let file = file.into();
        let keyring = Keyring::read(&file)?;
        let found = keyring.key_ids();
        let identity = Self::new(keyring);
        let following = follow(file, found, identity.downgrade(), changed);
        Ok((identity, following))
    }

    fn downgrade(&self) -> WeakIdentity {
        WeakIdentity(Arc::downgrade(&self.shared))
    }

    /// Its keys as series `PREFIX_peer_key_info{key_id,use}`, to be registered by the program.
    ///
    /// # Panics
    /// The prefix is no part of a metric's name.
    pub fn collector(&self, prefix: &str) -> Box<dyn Collector> {
        Box::new(KeyInfo::new(prefix, self.downgrade()))
    }

    /// Takes other keys. Connections that are there stay.
    pub fn replace(&self, keyring: Keyring) {
        let Shared { leaf, clock, .. } = &*self.shared;
        *self.shared.state.write() = State::new(keyring, leaf, clock);
    }

    /// What this process is to its peers.
    pub fn peer_id(&self) -> PeerId {
        self.shared.peer_id
    }

    /// The keys in the order of the file.
    pub fn key_ids(&self) -> Vec<(KeyId, KeyUse)> {
        self.shared.state.read().keyring.key_ids()
    }

    /// The handshake of a server. It takes up to ten seconds if the client is silent, so it belongs into a task of its
    /// own.
    ///
    /// # Errors
    /// What the peer lacks and what to do, as a [`HandshakeError`](crate::HandshakeError) within.
    pub async fn accept<IO>(&self, io: IO, clients: Clients) -> io::Result<server::TlsStream<IO>>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let configs = self.configs();
        let config = match clients {
            Clients::Required => &configs.required,
            Clients::Optional => &configs.optional,
        };
        let acceptor = TlsAcceptor::from(Arc::clone(config));
        handshake::accept(acceptor.accept(io).into_fallible()).await
    }

    /// The handshake of a client. It ends before the server has judged this process's certificate: a refusal is the
    /// error of the first read, which [`HandshakeError::of_read`](crate::HandshakeError::of_read) explains.
    ///
    /// # Errors
    /// What the peer lacks and what to do, as a [`HandshakeError`](crate::HandshakeError) within.
    pub async fn connect<IO>(&self, io: IO) -> io::Result<client::TlsStream<IO>>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let connector = TlsConnector::from(Arc::clone(&self.configs().client));
        handshake::connect(connector.connect(peer_name(), io)).await
    }

    /// Those of the moment, with a certificate that has most of its life before it.
    fn configs(&self) -> Arc<Configs> {
        let Shared { leaf, clock, .. } = &*self.shared;
        let now = now(clock);
        let state = self.shared.state.read();
        if !state.is_due(now) {
            return Arc::clone(&state.configs);
        }
        drop(state);
        let mut state = self.shared.state.write();
        if state.is_due(now) {
            state.configs = Arc::new(Configs::new(&state.keyring, leaf, clock, now));
            state.issued = now;
        }
        Arc::clone(&state.configs)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("peer_id", &self.peer_id())
            .field("keys", &self.key_ids())
            .finish()
    }
}

impl WeakIdentity {
    pub(crate) fn upgrade(&self) -> Option<Identity> {
        self.0.upgrade().map(|shared| Identity { shared })
    }
}

// === impl State ===

impl State {
    fn new(keyring: Keyring, leaf: &KeyPair, clock: &Arc<dyn TimeProvider>) -> Self {
        let issued = now(clock);
        Self {
            configs: Arc::new(Configs::new(&keyring, leaf, clock, issued)),
            keyring,
            issued,
        }
    }

    /// A certificate is also renewed when the clock was set back behind its date.
    fn is_due(&self, now: UnixTime) -> bool {
        let age = now.as_secs().checked_sub(self.issued.as_secs());
        age.is_none_or(|age| Duration::from_secs(age) >= RENEWAL)
    }
}

/// Without a clock rustls refuses every handshake and says why, so the date does not matter then.
fn now(clock: &Arc<dyn TimeProvider>) -> UnixTime {
    let unknown = UnixTime::since_unix_epoch(Duration::ZERO);
    clock.current_time().unwrap_or(unknown)
}

#[cfg(test)]
pub(crate) mod tests;
