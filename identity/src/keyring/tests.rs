//! Facts about key files.

use super::*;
use crate::identity::tests::{key, mk_keyring};
use rcgen::PublicKeyData;
use std::io::Write;

fn refused(text: &str) -> String {
    let error = Keyring::parse("/keys/key", text.as_bytes()).expect_err("refused");
    assert!(!format!("{error:?}").contains("hush"), "{error:?}");
    error.to_string()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_file_that_is_no_key_file_is_refused_by_line_and_shows_no_key() {
    let [one, two] = [1, 2].map(key);
    let short = &one[..31];
    let long = "hush".repeat(129);
    let nine = (0..9).map(key).collect::<Vec<_>>().join("\n");
    for (text, reason) in [
        (
            "",
            "/keys/key holds no key; write one into a line of its own",
        ),
        (
            "# none\n \t\n\n",
            "/keys/key holds no key; write one into a line of its own",
        ),
        (
            short,
            "/keys/key, line 1: a key of 31 characters; give 32 to 512",
        ),
        (
            &format!("{one}\n{long}"),
            "/keys/key, line 2: a key of 516 characters; give 32 to 512",
        ),
        (
            &format!("#\n\n{one} {two}"),
            "/keys/key, line 3: a character that is a space or not",
        ),
        (
            &format!("{one} # new"),
            "/keys/key, line 1: a character that is a space or not",
        ),
        (
            &format!("{one}é"),
            "/keys/key, line 1: a character that is a space or not",
        ),
        (
            &format!("{one}\u{0}"),
            "/keys/key, line 1: a character that is a space or not",
        ),
        (
            &format!("{one}\n{two}\n#\n{one}"),
            "/keys/key, line 4: the key of line 1 again",
        ),
        (&nine, "/keys/key, line 9: a key more than 8; remove"),
        (
            &"#\n".repeat(8193),
            "/keys/key is longer than 16384 bytes; give a file",
        ),
    ] {
        let refused = refused(text);
        assert!(refused.starts_with(reason), "{refused}");
        assert!(!refused.contains("hush"), "{refused}");
    }
}

#[test]
fn comments_blank_lines_and_white_space_around_a_key_do_not_count() {
    let [one, two] = [1, 2].map(key);
    let text = format!("# of May\r\n\r\n\t{one} \r\n  # of April\n{two}");
    let keyring = Keyring::parse("keys", text.as_bytes()).unwrap();
    assert_eq!(keyring.key_ids(), mk_keyring([1, 2]).key_ids());
}

#[test]
fn the_first_key_signs_and_all_verify() {
    let [(one, _)] = mk_keyring([1]).key_ids()[..] else {
        panic!("a key");
    };
    let ids = mk_keyring([2, 1, 3]).key_ids();
    let uses: Vec<KeyUse> = ids.iter().map(|(_, key_use)| *key_use).collect();
    assert_eq!(uses, [KeyUse::Signs, KeyUse::Verifies, KeyUse::Verifies]);
    assert_eq!(ids[1].0, one, "an id is of the key alone");
}

#[test]
fn keys_are_as_long_as_they_may_be() {
    for len in [KEY_LEN_MIN, KEY_LEN_MAX] {
        let text = "~".repeat(len);
        assert!(Keyring::parse("keys", text.as_bytes()).is_ok(), "{len}");
    }
}

/// Versions of pdserve meet as long as this holds. Python's `hmac` and OpenSSL's `pkey` have made the public key.
#[test]
fn the_authority_of_a_key_is_the_same_in_every_version() {
    let keyring = Keyring::parse("keys", b"0123456789abcdefghijklmnopqrstuvwxyzABCD").unwrap();
    let authority = keyring.authorities().next().unwrap();
    assert_eq!(
        hex(authority.der_bytes()),
        "71c1de66d727ad3656b2660c78d2c5d4eef49377675f60fb47cb9eb15b194276"
    );
    assert_eq!(authority.id().to_string(), "14b6b7ca81fc3c90");
}

#[test]
fn a_file_is_read_whole_and_one_that_is_not_there_is_named() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "{}\n{}", key(1), key(2)).unwrap();
    let read = Keyring::read(file.path()).unwrap();
    assert_eq!(read.key_ids(), mk_keyring([1, 2]).key_ids());

    let error = Keyring::read(Path::new("/nowhere/key")).unwrap_err();
    let error = error.to_string();
    assert!(
        error.starts_with("cannot read /nowhere/key: No such file"),
        "{error}"
    );
    let error = Keyring::read(Path::new("/dev/zero")).unwrap_err();
    assert!(matches!(error, KeyFileError::TooLong { .. }), "{error}");
}

#[test]
fn a_keyring_shows_ids() {
    let keyring = mk_keyring([1, 2]);
    let [(one, _), (two, _)] = keyring.key_ids()[..] else {
        panic!("two keys");
    };
    assert_eq!(
        format!("{keyring:?}"),
        format!("[({one}, Signs), ({two}, Verifies)]")
    );
    assert_eq!(KeyUse::Signs.as_str(), "signs");
}
