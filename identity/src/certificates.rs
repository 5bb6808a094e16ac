//! The certificates of a deployment: those of its authorities, which never travel, and those of its processes.

use crate::keyring::KeyId;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ED25519, PublicKeyData, SignatureAlgorithm, SigningKey, date_time_ymd,
};
use ring::digest::{SHA256, digest};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use rustls::CommonState;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ParsedCertificate;
use std::fmt;
use std::time::Duration;

/// The name of every process, for peers know each other by key and not by address.
pub(crate) const PEER_NAME: &str = "peer.pdserve.internal";
/// As long as a process's own key is of use to a thief who has no key of the deployment.
pub(crate) const LIFETIME: Duration = Duration::from_hours(24);
/// As far as the clocks of two processes may be apart.
pub(crate) const BACKDATE: Duration = Duration::from_hours(1);
/// As old as a certificate gets.
pub(crate) const RENEWAL: Duration = Duration::from_hours(8);
const KEY_ID_LABEL: &[u8] = b"pdserve identity v1: id of a key";

/// The certificate authority of one key of the deployment.
pub(crate) struct Authority {
    pair: Ed25519KeyPair,
}

/// One process for its life: a hash (SHA-256) of its public key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId([u8; 32]);

/// The peer of a connection, once its certificate is verified.
pub fn peer_id(connection: &CommonState) -> Option<PeerId> {
    let certificate = connection.peer_certificates()?.first()?;
    let certificate = ParsedCertificate::try_from(certificate).ok()?;
    Some(PeerId::of(&certificate.subject_public_key_info()))
}

// === impl Authority ===

impl Authority {
    pub(crate) fn of_seed(seed: &[u8; 32]) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed);
        Self {
            pair: pair.expect("32 bytes are a seed"),
        }
    }

    pub(crate) fn id(&self) -> KeyId {
        let text = [KEY_ID_LABEL, self.der_bytes()].concat();
        let hash = digest(&SHA256, &text);
        let mut id = [0; 8];
        id.copy_from_slice(&hash.as_ref()[..8]);
        KeyId(id)
    }

    /// Its own certificate, the same in every process.
    pub(crate) fn certificate(&self) -> CertificateDer<'static> {
        let certificate = self.params().self_signed(self);
        certificate.expect("an authority signs its form").into()
    }

    /// A certificate for the process with this key pair.
    pub(crate) fn issue(&self, leaf: &KeyPair, now: UnixTime) -> CertificateDer<'static> {
        let now = Duration::from_secs(now.as_secs());
        let epoch = date_time_ymd(1970, 1, 1);
        let id = PeerId::of(&leaf.subject_public_key_info());
        let mut params = CertificateParams::new([PEER_NAME.to_owned()]).expect("a DNS name");
        params.distinguished_name = named(&id.to_string());
        params.not_before = epoch + now.saturating_sub(BACKDATE);
        params.not_after = epoch + now + LIFETIME;
        // One of an authority's certificates has it: a process gets one a second at most.
        let serial_number = [&id.0[..11], &now.as_secs().to_be_bytes()].concat();
        params.serial_number = Some(serial_number.into());
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        params.use_authority_key_identifier_extension = true;
        let own = self.params();
        let issued = params.signed_by(leaf, &Issuer::from_params(&own, self));
        issued.expect("an authority signs its form").into()
    }

    fn params(&self) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name = named(&format!("pdserve deployment key {}", self.id()));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params
    }
}

fn named(name: &str) -> rcgen::DistinguishedName {
    let mut names = rcgen::DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

impl PublicKeyData for Authority {
    fn der_bytes(&self) -> &[u8] {
        self.pair.public_key().as_ref()
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ED25519
    }
}

impl SigningKey for Authority {
    fn sign(&self, text: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        Ok(self.pair.sign(text).as_ref().to_vec())
    }
}

// === impl PeerId ===

impl PeerId {
    /// Of a SubjectPublicKeyInfo.
    pub(crate) fn of(public_key: &[u8]) -> Self {
        let mut id = [0; 32];
        id.copy_from_slice(digest(&SHA256, public_key).as_ref());
        Self(id)
    }
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests;
