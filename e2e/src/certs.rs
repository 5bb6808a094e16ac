//! A certificate authority of our own, for one cluster or one test, and what it signs. Everything
//! lies in one folder as PEM.

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// A signing authority for clients and servers.
pub struct Authority {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, on disk.
#[derive(Clone, Debug)]
pub struct Identity {
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// Who a certificate speaks for: Kubernetes reads the user from the common name and the group from the
/// organization.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    pub user: &'a str,
    pub group: Option<&'a str>,
}

// === impl Authority ===

impl Authority {
    /// # Errors
    /// When `folder` cannot be written.
    pub fn new(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).context("make the certificates' folder")?;
        let mut params = CertificateParams::default();
        params.distinguished_name = name(Subject {
            user: "pdserve-e2e",
            group: None,
        });
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let key = KeyPair::generate()?;
        write_secret(&folder.join("ca.key"), &key.serialize_pem())?;
        fs::write(folder.join("ca.crt"), params.self_signed(&key)?.pem())?;
        Ok(Self {
            folder: folder.to_owned(),
            issuer: Issuer::new(params, key),
        })
    }

    /// The authority's own certificate and key.
    pub fn identity(&self) -> Identity {
        self.at("ca")
    }

    /// # Errors
    /// When the files cannot be written.
    pub fn client(&self, file: &str, subject: Subject<'_>) -> Result<Identity> {
        self.issue(file, subject, &[], ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// `names` are host names and addresses.
    ///
    /// # Errors
    /// When the files cannot be written.
    pub fn server(&self, file: &str, user: &str, names: &[&str]) -> Result<Identity> {
        let subject = Subject { user, group: None };
        self.issue(file, subject, names, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// A key pair for service account tokens: `cert` is the public key, without a certificate.
    ///
    /// # Errors
    /// When the files cannot be written.
    pub fn service_accounts(&self) -> Result<Identity> {
        let pair = KeyPair::generate()?;
        let Identity { key, .. } = self.at("service-accounts");
        let cert = self.folder.join("service-accounts.pub");
        write_secret(&key, &pair.serialize_pem())?;
        fs::write(&cert, pair.public_key_pem())?;
        Ok(Identity { cert, key })
    }

    fn issue(
        &self,
        file: &str,
        subject: Subject<'_>,
        names: &[&str],
        usage: ExtendedKeyUsagePurpose,
    ) -> Result<Identity> {
        let names: Vec<String> = names.iter().map(|&n| n.to_owned()).collect();
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = name(subject);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate()?;
        let identity = self.at(file);
        write_secret(&identity.key, &key.serialize_pem())?;
        fs::write(&identity.cert, params.signed_by(&key, &self.issuer)?.pem())?;
        Ok(identity)
    }

    fn at(&self, file: &str) -> Identity {
        Identity {
            cert: self.folder.join(format!("{file}.crt")),
            key: self.folder.join(format!("{file}.key")),
        }
    }
}

fn name(subject: Subject<'_>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, subject.user);
    if let Some(group) = subject.group {
        name.push(DnType::OrganizationName, group);
    }
    name
}

fn write_secret(path: &Path, text: &str) -> Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text.as_bytes())?;
    Ok(())
}
