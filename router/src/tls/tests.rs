//! Facts about certificates and keys.

use super::*;
use rcgen::{CertifiedKey, KeyPair};

struct Pair {
    cert: String,
    key: String,
}

fn mk_pair() -> Pair {
    let CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["router".to_owned()]).expect("a certificate");
    Pair {
        cert: cert.pem(),
        key: signing_key.serialize_pem(),
    }
}

/// A certificate for `router` that is its own authority, and its key.
pub(super) fn write_pair(folder: &Path) -> TlsFiles {
    let Pair { cert, key } = mk_pair();
    let files = TlsFiles {
        cert: folder.join("tls.crt"),
        key: folder.join("tls.key"),
    };
    fs::write(&files.cert, cert).expect("a file is written");
    fs::write(&files.key, key).expect("a file is written");
    files
}

fn parse(cert: &str, key: &str) -> Result<ServerConfig, String> {
    let files = TlsFiles {
        cert: "/tls/tls.crt".into(),
        key: "/tls/tls.key".into(),
    };
    let content = TlsContent {
        cert: cert.into(),
        key: key.into(),
    };
    files.parse(&content).map_err(|error| error.to_string())
}

#[test]
fn a_pair_serves_and_only_what_the_server_speaks_is_agreed_on() {
    let Pair { cert, key } = mk_pair();
    let config = parse(&cert, &key).unwrap();
    assert_eq!(config.alpn_protocols, [ALPN]);
    let chain = cert.clone() + &mk_pair().cert;
    assert!(parse(&chain, &key).is_ok());
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    let told = parse(&mk_pair().cert, &mk_pair().key).unwrap_err();
    assert!(told.contains("do not serve together"), "{told}");
    assert!(
        told.contains("/tls/tls.crt") && told.contains("/tls/tls.key"),
        "{told}"
    );
}

#[test]
fn what_is_no_pem_is_refused_by_file_and_flag_and_not_told() {
    let Pair { cert, key } = mk_pair();
    let broken = cert.replace("-----END", "-----");
    for (cert, key, part) in [
        (
            "",
            key.as_str(),
            "/tls/tls.crt (--tls-cert-path) holds no certificate",
        ),
        (
            "hush",
            &key,
            "/tls/tls.crt (--tls-cert-path) holds no certificate",
        ),
        (
            &broken,
            &key,
            "/tls/tls.crt (--tls-cert-path) holds no certificate",
        ),
        (
            &key,
            &key,
            "/tls/tls.crt (--tls-cert-path) holds no certificate",
        ),
        (
            &cert,
            "",
            "/tls/tls.key (--tls-key-path) holds no private key",
        ),
        (
            &cert,
            "hush",
            "/tls/tls.key (--tls-key-path) holds no private key",
        ),
        (
            &cert,
            &cert,
            "/tls/tls.key (--tls-key-path) holds no private key",
        ),
    ] {
        let told = parse(cert, key).unwrap_err();
        assert!(told.contains(part) && !told.contains("hush"), "{told}");
    }
}

#[test]
fn a_certificate_that_is_none_inside_its_pem_is_refused() {
    let key = KeyPair::generate().expect("a key").serialize_pem();
    let cert = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let told = parse(cert, &key).unwrap_err();
    assert!(told.contains("do not serve together"), "{told}");
}

#[test]
fn a_file_that_is_not_there_is_named_with_its_flag() {
    let files = TlsFiles {
        cert: "/nowhere/tls.crt".into(),
        key: "/nowhere/tls.key".into(),
    };
    let told = files.read().err().expect("refused").to_string();
    assert!(
        told.starts_with("cannot read /nowhere/tls.crt (--tls-cert-path)"),
        "{told}"
    );
}
