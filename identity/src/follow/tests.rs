//! Facts about key files that change.

use super::{POLL_INTERVAL, Polls};
use crate::Identity;
use crate::identity::tests::{key, mk_keyring};
use crate::keyring::{KeyId, KeyUse};
use parking_lot::Mutex;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use tokio::time::{Duration, sleep};

fn write<const N: usize>(file: &Path, numbers: [usize; N]) {
    fs::write(file, numbers.map(key).join("\n")).expect("a file is written");
}

fn ids<const N: usize>(numbers: [usize; N]) -> Vec<(KeyId, KeyUse)> {
    mk_keyring(numbers).key_ids()
}

/// As many polls as a change takes, and one more.
async fn polls() {
    sleep(POLL_INTERVAL * 3 + Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn an_identity_follows_its_file_and_keeps_the_last_usable_keys() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    write(&file, [1]);
    let changes = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&changes);
    let (identity, follow) =
        Identity::follow(&file, move |is_taken| heard.lock().push(is_taken)).unwrap();
    let following = tokio::spawn(follow);
    let peer_id = identity.peer_id();

    write(&file, [1, 2]);
    polls().await;
    assert_eq!(identity.key_ids(), ids([1, 2]));

    fs::write(&file, "hush").unwrap();
    polls().await;
    assert_eq!(identity.key_ids(), ids([1, 2]));
    fs::remove_file(&file).unwrap();
    polls().await;
    assert_eq!(identity.key_ids(), ids([1, 2]));

    write(&file, [2, 1]);
    polls().await;
    assert_eq!(identity.key_ids(), ids([2, 1]));
    assert_eq!(identity.peer_id(), peer_id);
    assert_eq!(*changes.lock(), [true, false, false, true]);

    drop(identity);
    following.await.expect("it ends with the identity");
}

#[test]
fn a_file_that_cannot_be_used_is_refused_at_the_start() {
    let error = Identity::follow("/nowhere/key", drop)
        .err()
        .expect("refused");
    assert!(error.to_string().contains("/nowhere/key"), "{error}");
}

#[test]
fn a_change_counts_once_and_after_two_polls_agree() {
    let mut polls = Polls {
        applied: Ok(ids([1])),
        last: Ok(ids([1])),
    };
    let bad = || Err("line 1".to_owned());
    for (found, applies) in [
        (Ok(ids([1])), false),
        (Ok(ids([1, 2])), false),
        (bad(), false),
        (bad(), true),
        (bad(), false),
        (Ok(ids([1, 2])), false),
        (Ok(ids([1, 2])), true),
        (Ok(ids([1, 2])), false),
        (Ok(ids([2, 1])), false),
        (Ok(ids([2, 1])), true),
    ] {
        let note = format!("{found:?}");
        assert_eq!(polls.settle(found), applies, "{note}");
    }
}
