//! Locks of a repository.

use super::*;

#[test]
fn a_lock_that_is_given_back_is_free_while_others_have_its_descriptor() {
    let root = tempfile::tempdir().unwrap();
    let repo = Cache::new(root.path()).in_folder("models--Qwen--Tiny");
    repo.prepare().unwrap();
    let lock = repo.lock_alone().unwrap().unwrap();
    // As a process has it that was started, and does not run its program yet.
    let copy = lock.0.try_clone().unwrap();
    assert!(repo.lock_alone().unwrap().is_none());
    drop(lock);
    assert!(repo.lock_alone().unwrap().is_some());
    drop(copy);
}
