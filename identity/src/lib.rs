//! How the processes of one deployment know each other. They share a key file; from each of its keys every process
//! derives the same certificate authority, and signs a short-lived certificate for itself. Peers meet by mutual
//! TLS 1.3, which rustls and its verifiers do alone.
//!
//! A [`Keyring`] is what a key file holds → an [`Identity`] is one process with these keys → its handshakes give
//! streams whose peer has a [`PeerId`] → [`Peers`] is an identity or none, so that callers are the same with and
//! without a key.
//!
//! A certificate proves that its holder has a key of the deployment, and nothing else: all processes are equal
//! (decision 0063).

mod certificates;
mod configs;
mod follow;
mod handshake;
mod identity;
mod keyring;
mod metrics;
mod stream;

pub use certificates::{PeerId, peer_id};
pub use handshake::HandshakeError;
pub use identity::{Clients, Identity};
pub use keyring::{KEYS_MAX, KeyFileError, KeyId, KeyUse, Keyring, LineFault};
pub use stream::{Peers, Stream};
