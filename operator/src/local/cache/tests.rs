//! Facts about state files.

use super::*;
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_state_is_seen_while_its_owner_lives() {
    let cache = tempfile::tempdir().unwrap();
    assert!(running(cache.path()).is_empty());
    let state = StateFile::take(cache.path(), "default", "tiny").unwrap();
    state.write(b"{}").unwrap();
    state.write(b"[]").unwrap();
    assert_eq!(running(cache.path()), vec![b"[]".to_vec()]);
    drop(state);
    assert!(running(cache.path()).is_empty());
    assert_eq!(
        std::fs::read_dir(cache.path().join("local"))
            .unwrap()
            .count(),
        0
    );
}

#[test]
fn a_deployment_runs_once() {
    let cache = tempfile::tempdir().unwrap();
    let _first = StateFile::take(cache.path(), "default", "tiny").unwrap();
    let second = StateFile::take(cache.path(), "default", "tiny").unwrap_err();
    assert!(
        second
            .to_string()
            .starts_with("tiny already runs on this machine")
    );
    assert!(StateFile::take(cache.path(), "default", "other").is_ok());
}

#[test]
fn a_file_left_by_a_killed_operator_is_passed_over() {
    let cache = tempfile::tempdir().unwrap();
    let folder = cache.path().join("local");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("default.tiny.json"), "{}").unwrap();
    std::fs::write(folder.join("default.tiny.lock"), "").unwrap();
    assert!(running(cache.path()).is_empty());
}

#[test]
fn the_default_folder_is_the_users_cache() {
    let path = |text: &str| Some(PathBuf::from(text));
    assert_eq!(
        default_folder(path("/x"), path("/home/u")),
        PathBuf::from("/x/pdserve")
    );
    assert_eq!(
        default_folder(path("x"), path("/home/u")),
        PathBuf::from("/home/u/.cache/pdserve")
    );
    assert_eq!(default_folder(None, None), PathBuf::from(".cache/pdserve"));
}

#[test]
fn keys_are_made_once_for_their_user_alone_and_stay() {
    let cache = tempfile::tempdir().unwrap();
    let file = peer_key_file(cache.path(), "default", "tiny");
    let mut made = Vec::new();
    for _ in 0..2 {
        let state = StateFile::take(cache.path(), "default", "tiny").unwrap();
        state.ensure_peer_keys().unwrap();
        made.push(std::fs::read(&file).unwrap());
    }
    assert_eq!(made[0], made[1]);
    let keyring = pd_identity::Keyring::read(&file).unwrap();
    assert_eq!(keyring.key_ids().len(), 1);
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
