//! Facts about keys.

use super::*;
use crate::reload::Source;
use axum::response::IntoResponse;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn mk_folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, text) in files {
        fs::write(folder.path().join(name), text).expect("a file is written");
    }
    folder
}

fn mk_keys(own: Option<&str>, path: Option<&Path>) -> ApiKeys {
    let config = ApiKeyConfig {
        own: own.map(|key| Secret::from(key.to_owned())),
        for_workers: None,
        files: path.map(|path| KeyFiles(path.to_owned())),
    };
    ApiKeys::open(&config, &Arc::default(), &Vitals::default()).expect("usable keys")
}

fn mk_headers(key: &str) -> HeaderMap {
    let value = HeaderValue::try_from(format!("Bearer {key}")).expect("a header's value");
    HeaderMap::from_iter([(AUTHORIZATION, value)])
}

fn refusal(path: &Path) -> String {
    let files = KeyFiles(path.to_owned());
    let read = files.read().and_then(|content| files.parse(&content));
    read.expect_err("refused").to_string()
}

#[tokio::test]
async fn any_of_the_keys_opens_and_no_other() {
    let folder = mk_folder(&[("team-a", "ka\n"), ("team-b", "kb\r\n"), (".old", "ko")]);
    let keys = mk_keys(Some("k1"), Some(folder.path()));
    for key in ["k1", "ka", "kb"] {
        assert!(keys.check(&mk_headers(key)).is_ok(), "{key}");
    }
    for key in ["ko", "k", "ka kb", "ka\tkb", ""] {
        let refused = keys.check(&mk_headers(key)).unwrap_err();
        assert_eq!(refused.into_response().status(), 401, "{key}");
    }
    assert!(keys.check(&HeaderMap::new()).is_err());
}

#[tokio::test]
async fn without_keys_anyone_is_served() {
    assert!(mk_keys(None, None).check(&HeaderMap::new()).is_ok());
}

#[tokio::test]
async fn one_file_is_one_key() {
    let folder = mk_folder(&[("key", "k1\n")]);
    let keys = mk_keys(None, Some(&folder.path().join("key")));
    assert!(keys.check(&mk_headers("k1")).is_ok());
    assert!(keys.check(&mk_headers("k2")).is_err());
}

#[tokio::test]
async fn workers_are_sent_the_routers_own_key_and_never_a_clients() {
    let folder = mk_folder(&[("team-a", "ka")]);
    let sent = |own, path| {
        let mut headers = mk_headers("ka");
        mk_keys(own, path).replace(&mut headers);
        headers.remove(AUTHORIZATION)
    };
    let path = Some(folder.path());
    assert_eq!(sent(None, path), None);
    assert_eq!(sent(Some("k1"), path).unwrap(), "Bearer k1");
    assert_eq!(sent(Some("k1"), None).unwrap(), "Bearer k1");
    assert_eq!(sent(None, None).unwrap(), "Bearer ka", "workers may ask");
}

#[tokio::test]
async fn a_key_of_the_workers_opens_nothing_here_and_is_what_they_are_sent() {
    for own in [None, Some("k1")] {
        let config = ApiKeyConfig {
            own: own.map(|key| Secret::from(key.to_owned())),
            for_workers: Some(Secret::from("kw".to_owned())),
            files: None,
        };
        let keys = ApiKeys::open(&config, &Arc::default(), &Vitals::default()).expect("usable");
        assert_eq!(keys.check(&mk_headers("kw")).is_ok(), own.is_none());
        let mut headers = mk_headers("k1");
        keys.replace(&mut headers);
        assert_eq!(headers[AUTHORIZATION], "Bearer kw");
    }
}

#[test]
fn what_cannot_be_a_key_is_refused_by_file_and_not_printed() {
    let folder = mk_folder(&[("team-a", "ka"), ("team-b", "hush hush\n")]);
    let reason = refusal(folder.path());
    let file = folder.path().join("team-b").display().to_string();
    assert!(
        reason.contains(&file) && !reason.contains("hush"),
        "{reason}"
    );
    for (text, part) in [("", "it is empty"), ("\n", "it is empty"), ("a\nb", "line")] {
        let folder = mk_folder(&[("key", text)]);
        let reason = refusal(folder.path());
        assert!(reason.contains(part), "{text:?}: {reason}");
    }
    let folder = mk_folder(&[("key", &"k".repeat(5000))]);
    assert!(refusal(folder.path()).contains("longer than 4096"));
}

#[test]
fn a_path_without_keys_is_refused_with_what_to_do() {
    let folder = mk_folder(&[(".hidden", "k")]);
    assert!(refusal(folder.path()).contains("no client could be served"));
    let reason = refusal(&folder.path().join("none"));
    assert!(reason.contains("none (--api-key-file)"), "{reason}");
    let names: Vec<String> = (0..=files::KEYS_MAX).map(|i| i.to_string()).collect();
    let files: Vec<_> = names.iter().map(|name| (name.as_str(), "k")).collect();
    assert!(refusal(mk_folder(&files).path()).contains("more than 1024"));
}

#[test]
fn keys_are_never_shown() {
    let config = ApiKeyConfig {
        own: Some(Secret::from("hush".to_owned())),
        for_workers: Some(Secret::from("hush too".to_owned())),
        files: None,
    };
    assert!(!format!("{config:?}").contains("hush"));
}

#[test]
fn a_key_that_is_taken_away_is_refused_even_beside_broken_files() {
    let files = KeyFiles("/keys".into());
    let file = |name: &str, content: &str| (PathBuf::from(name), content.as_bytes().to_vec());
    let changed = vec![file("/keys/a", "sk-good"), file("/keys/b", "with a space")];
    let change = files.parse_change(&changed).expect("the good one counts");
    assert_eq!(change.value.len(), 1);
    let unusable = change.unusable;
    assert!(unusable.is_some_and(|error| error.to_string().contains("/keys/b")));
    let change = files
        .parse_change(&Vec::new())
        .expect("no client is admitted");
    assert!(change.value.is_empty());
    assert!(matches!(change.unusable, Some(KeyFilesError::NoKey(_))));
}
