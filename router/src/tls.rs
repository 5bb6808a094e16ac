//! TLS at the API's port: certificate and key, from files that are read again when they change, as
//! cert-manager and the like renew them. A new pair is for connections that come after it; those
//! that are there keep theirs.

mod listener;

pub(crate) use listener::TlsListener;

use crate::metrics::{Metrics, Validity};
use crate::reload::Source;
use der::asn1::{AnyRef, GeneralizedTime, UtcTime};
use der::{Decode, SliceReader, Tag, Tagged};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const CERT_FLAG: &str = "--tls-cert-path";
const KEY_FLAG: &str = "--tls-key-path";

/// The server speaks this and nothing newer.
const ALPN: &[u8] = b"http/1.1";

/// PEM files: the certificate with those between it and its authority, and its private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

/// What the files hold.
#[derive(Clone, PartialEq)]
pub(crate) struct TlsContent {
    cert: Vec<u8>,
    key: Vec<u8>,
}

/// Why the files cannot be served with.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {path} ({flag}): {source}; give a PEM file that this process may read")]
    Unreadable {
        flag: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error(
        "{path} ({flag}) holds no {wanted}: {source}; give it in PEM, as `tls.{suffix}` of a Secret has it"
    )]
    Pem {
        flag: &'static str,
        path: PathBuf,
        wanted: &'static str,
        suffix: &'static str,
        source: pem::Error,
    },
    #[error(
        "{cert} ({CERT_FLAG}) and {key} ({KEY_FLAG}) do not serve together: {source}; give a \
         certificate, its chain behind it, and the private key that it was made for"
    )]
    Pair {
        cert: PathBuf,
        key: PathBuf,
        source: rustls::Error,
    },
}

impl Source for TlsFiles {
    type Content = TlsContent;
    type Value = ServerConfig;
    type Error = TlsError;
    const NAME: &'static str = "certificate";

    fn read(&self) -> Result<TlsContent, TlsError> {
        let read = |flag, path: &Path| {
            fs::read(path).map_err(|source| TlsError::Unreadable {
                flag,
                path: path.to_owned(),
                source,
            })
        };
        Ok(TlsContent {
            cert: read(CERT_FLAG, &self.cert)?,
            key: read(KEY_FLAG, &self.key)?,
        })
    }

    fn parse(&self, content: &TlsContent) -> Result<ServerConfig, TlsError> {
        let chain = self.chain(&content.cert)?;
        let key = PrivateKeyDer::from_pem_slice(&content.key).map_err(|source| TlsError::Pem {
            flag: KEY_FLAG,
            path: self.key.clone(),
            wanted: "private key that is not encrypted",
            suffix: "key",
            source,
        })?;
        // kube's provider; two would be two copies of the same ciphers.
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|config| config.with_no_client_auth().with_single_cert(chain, key));
        let mut config = config.map_err(|source| TlsError::Pair {
            cert: self.cert.clone(),
            key: self.key.clone(),
            source,
        })?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(config)
    }

    fn report(&self, content: &TlsContent, metrics: &Metrics) {
        let chain = self.chain(&content.cert).unwrap_or_default();
        metrics.serves_with(chain.first().and_then(validity));
    }
}

/// Nothing of a certificate whose form rustls takes and RFC 5280 (section 4.1) does not know. Of
/// its fields only those on the way to the validity are decoded.
fn validity(certificate: &CertificateDer<'_>) -> Option<Validity> {
    let mut certificate = inside(AnyRef::from_der(certificate).ok()?)?;
    let mut signed = inside(AnyRef::decode(&mut certificate).ok()?)?;
    let mut next = || AnyRef::decode(&mut signed).ok();
    // A certificate of version 1 does not say so, and begins with its serial number.
    if next()?.tag() != Tag::Integer {
        let _serial_number = next()?;
    }
    let _signature_algorithm = next()?;
    let _issuer = next()?;
    let mut dates = inside(next()?)?;
    let mut next = || seconds(AnyRef::decode(&mut dates).ok()?);
    Some(Validity {
        not_before: next()?,
        not_after: next()?,
    })
}

/// A reader of what a sequence holds.
fn inside(sequence: AnyRef<'_>) -> Option<SliceReader<'_>> {
    SliceReader::new(sequence.value()).ok()
}

/// Seconds since 1970.
fn seconds(time: AnyRef<'_>) -> Option<u64> {
    let since = if time.tag() == Tag::UtcTime {
        time.decode_as::<UtcTime>().ok()?.to_unix_duration()
    } else {
        let time = time.decode_as::<GeneralizedTime>().ok()?;
        time.to_unix_duration()
    };
    Some(since.as_secs())
}

// === impl TlsFiles ===

impl TlsFiles {
    fn chain(&self, cert: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(cert).collect();
        let chain = chain.and_then(|chain| {
            if chain.is_empty() {
                Err(pem::Error::NoItemsFound)
            } else {
                Ok(chain)
            }
        });
        chain.map_err(|source| TlsError::Pem {
            flag: CERT_FLAG,
            path: self.cert.clone(),
            wanted: "certificate",
            suffix: "crt",
            source,
        })
    }
}

#[cfg(test)]
mod tests;
