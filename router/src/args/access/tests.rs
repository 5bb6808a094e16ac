//! Facts about access flags.

use super::*;
use clap::Parser;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    args: AccessArgs,
}

fn parse(line: &str) -> Result<Line, clap::Error> {
    Line::try_parse_from(["pd-router"].into_iter().chain(line.split(' ')))
}

#[test]
fn keys_are_never_shown() {
    let line = parse("--api-key hush").unwrap();
    assert!(!format!("{line:?}").contains("hush"));
    let refused = parse("--api-key hushé").unwrap().args.into_api_keys();
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("PDSERVE_API_KEY") && !refused.contains("hush"));
}

#[test]
fn an_empty_key_is_refused() {
    let refused = parse("--api-key=").unwrap().args.into_api_keys();
    assert_eq!(
        refused.err(),
        Some(AccessArgsError::ApiKey(SecretError::Empty))
    );
}

#[test]
fn a_certificate_wants_its_key_and_a_key_its_certificate() {
    let refusal = |line| parse(line).unwrap_err().to_string();
    assert!(refusal("--tls-cert-path a").contains("--tls-key-path"));
    assert!(refusal("--tls-key-path a").contains("--tls-cert-path"));
    let tls = parse("--tls-cert-path a --tls-key-path b")
        .unwrap()
        .args
        .tls();
    let (cert, key) = ("a".into(), "b".into());
    assert_eq!(tls, Some(TlsFiles { cert, key }));
}
