//! Facts about worker URLs.

use super::*;

#[test]
fn a_url_is_scheme_host_and_port() {
    let endpoint = Endpoint::parse("http://[::1]:30000/", false).unwrap();
    assert_eq!(endpoint.host(), "::1");
    assert_eq!(endpoint.port(), 30000);
    assert_eq!(endpoint.authority(), "[::1]:30000");
    assert_eq!(Endpoint::parse("http://a", true).unwrap().port(), 80);
    assert_eq!(Endpoint::parse("https://a", true).unwrap().port(), 443);
}

#[test]
fn anything_else_is_refused_with_its_reason() {
    assert!(matches!(
        Endpoint::parse("ftp://a:1", true),
        Err(EndpointError::Scheme(_))
    ));
    assert!(matches!(
        Endpoint::parse("http://a:1/v1", false),
        Err(EndpointError::HasPath(_))
    ));
    for url in [
        "http://",
        "http://a:99999",
        "http://[::1]:x",
        "http://a:",
        "http://u:p@a:1",
    ] {
        assert!(Endpoint::parse(url, false).is_err(), "{url}");
    }
    for forgotten in ["10.0.0.7:30000", "foo", "localhost:30000"] {
        let refused = Endpoint::parse(forgotten, false).unwrap_err().to_string();
        let remedy = format!("http:// is missing; write http://{forgotten}");
        assert!(refused.contains(&remedy), "{refused}");
    }
}

#[test]
fn tls_needs_a_key_and_a_key_forces_no_tls() {
    let refused = Endpoint::parse("https://a:1", false)
        .unwrap_err()
        .to_string();
    assert!(refused.contains("give --peer-key-file"), "{refused}");
    assert!(Endpoint::parse("https://a:1", true).unwrap().is_tls());
    assert!(!Endpoint::parse("http://a:1", true).unwrap().is_tls());
}
