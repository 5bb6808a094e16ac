//! Facts about origins.

use super::*;

fn allows(origins: &CorsOrigins, origin: &'static str) -> bool {
    origins.allow(&HeaderValue::from_static(origin)).is_some()
}

#[test]
fn pages_of_this_machine_are_known_by_their_host() {
    for local in [
        "http://localhost:3000",
        "http://127.0.0.1",
        "https://[::1]:8443",
        "http://chat.localhost",
    ] {
        assert!(allows(&CorsOrigins::Local, local), "{local}");
    }
    for foreign in [
        "https://localhost.example.com",
        "http://10.0.0.1",
        "null",
        "file://",
    ] {
        assert!(!allows(&CorsOrigins::Local, foreign), "{foreign}");
    }
}

#[test]
fn what_no_browser_sends_is_refused() {
    let listed = |origin: &str| CorsOrigins::listed(&[origin.to_owned()]);
    let origins = listed("https://Chat.example.com:8443").unwrap();
    assert!(allows(&origins, "https://chat.example.com:8443"));
    assert!(!allows(&origins, "https://chat.example.com"));
    assert_eq!(listed("*"), Ok(CorsOrigins::Any));
    for wrong in ["chat.example.com", "https://a/", "https://a/b", ""] {
        assert_eq!(listed(wrong), Err(OriginError(wrong.to_owned())));
    }
}
