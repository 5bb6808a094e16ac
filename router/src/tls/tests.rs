//! Facts about certificates and keys.

use super::*;
use crate::metrics::Gauges;
use rcgen::{CertificateParams, CertifiedKey, KeyPair, date_time_ymd};

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
    let reason = parse(&mk_pair().cert, &mk_pair().key).unwrap_err();
    assert!(reason.contains("do not serve together"), "{reason}");
    assert!(
        reason.contains("/tls/tls.crt") && reason.contains("/tls/tls.key"),
        "{reason}"
    );
}

#[test]
fn what_is_no_pem_is_refused_by_file_and_flag_and_not_printed() {
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
        let reason = parse(cert, key).unwrap_err();
        assert!(
            reason.contains(part) && !reason.contains("hush"),
            "{reason}"
        );
    }
}

#[test]
fn a_certificate_that_is_none_inside_its_pem_is_refused() {
    let key = KeyPair::generate().expect("a key").serialize_pem();
    let cert = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let reason = parse(cert, &key).unwrap_err();
    assert!(reason.contains("do not serve together"), "{reason}");
}

#[test]
fn a_file_that_is_not_there_is_named_with_its_flag() {
    let files = TlsFiles {
        cert: "/nowhere/tls.crt".into(),
        key: "/nowhere/tls.key".into(),
    };
    let reason = files.read().err().expect("refused").to_string();
    assert!(
        reason.starts_with("cannot read /nowhere/tls.crt (--tls-cert-path)"),
        "{reason}"
    );
}

#[test]
fn metrics_show_the_dates_of_the_served_certificate() {
    let of_year = |year| {
        let mut params = CertificateParams::new(["router".to_owned()]).expect("a name");
        params.not_before = date_time_ymd(year, 1, 1);
        params.not_after = date_time_ymd(year + 1, 1, 1);
        let key = KeyPair::generate().expect("a key");
        params.self_signed(&key).expect("a certificate").pem()
    };
    let files = TlsFiles {
        cert: "/tls/tls.crt".into(),
        key: "/tls/tls.key".into(),
    };
    let metrics = Metrics::new();
    let gauges = Gauges {
        in_flight: 0,
        in_flight_max: None,
        queue_waiting: 0,
        rooms: 0,
    };
    let report = |cert: String| {
        let content = TlsContent {
            cert: cert.into(),
            key: Vec::new(),
        };
        files.report(&content, &metrics);
        let text = metrics.text(&[], gauges);
        let text = String::from_utf8(text).expect("text");
        let reason = text
            .lines()
            .filter(|line| line.starts_with("pd_router_certificate"));
        reason.map(str::to_owned).collect::<Vec<_>>()
    };

    // 2049 is the last year of UTCTime, 2050 the first of GeneralizedTime.
    for (year, [from, until]) in [
        (2026, [1_767_225_600_u64, 1_798_761_600]),
        (2049, [2_493_072_000, 2_524_608_000]),
    ] {
        assert_eq!(
            report(of_year(year) + &mk_pair().cert),
            [
                format!("pd_router_certificate_not_after_timestamp_seconds {until}"),
                format!("pd_router_certificate_not_before_timestamp_seconds {from}"),
            ],
            "the leaf's, not that of its authority"
        );
    }
    assert!(report(String::new()).is_empty());
}
