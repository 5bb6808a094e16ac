//! Facts about secrets.

use super::*;

fn mk_secret(text: &str) -> Secret {
    Secret::from(text.to_owned())
}

#[test]
fn only_the_secret_itself_matches() {
    let secret = mk_secret("hush");
    assert!(secret.matches(b"hush"));
    for other in ["hus", "hush!", "", "HUSH", "hushhush"] {
        assert!(!secret.matches(other.as_bytes()), "{other}");
    }
    assert!(!mk_secret("").matches(b"hush"));
}

#[test]
fn it_is_never_shown() {
    assert_eq!(format!("{:?}", mk_secret("hush")), "(hidden)");
}

#[test]
fn a_key_that_no_header_can_carry_is_refused_without_being_printed() {
    assert_eq!(mk_secret("sk-Ab_1.~+/=").check(), Ok(()));
    for (text, error) in [
        (String::new(), SecretError::Empty),
        ("k".repeat(SECRET_BYTES_MAX + 1), SecretError::TooLong),
        ("two words".to_owned(), SecretError::Character),
        ("two\nlines".to_owned(), SecretError::Character),
        ("clé".to_owned(), SecretError::Character),
    ] {
        assert_eq!(mk_secret(&text).check(), Err(error), "{text}");
    }
}

#[test]
fn a_token_is_read_in_any_case_of_its_scheme_and_of_no_other() {
    assert_eq!(bearer_token(b"Bearer k"), Some(b"k".as_slice()));
    assert_eq!(bearer_token(b"bEARER  k "), Some(b"k".as_slice()));
    assert_eq!(bearer_token(b"Bearer "), Some(b"".as_slice()));
    for other in [b"Basic k".as_slice(), b"Bearerk", b"Bearer", b"k", b""] {
        assert_eq!(bearer_token(other), None);
    }
    let presented = mk_secret("k").to_bearer();
    assert_eq!(bearer_token(presented.as_bytes()), Some(b"k".as_slice()));
}
