//! Facts about edits.

use super::*;

#[test]
fn an_edit_is_taken_in_once_and_only_when_finished() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, "one").unwrap();
    let mut file = WatchedFile::new(&path);
    assert!(!file.take_edit());
    std::fs::write(&path, "tw").unwrap();
    assert!(!file.take_edit());
    assert!(file.is_being_edited());
    std::fs::write(&path, "two").unwrap();
    assert!(!file.take_edit());
    assert!(file.take_edit());
    assert!(!file.take_edit() && !file.is_being_edited());
}

#[test]
fn a_missing_file_is_no_edit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, "one").unwrap();
    let mut file = WatchedFile::new(&path);
    std::fs::remove_file(&path).unwrap();
    assert!(!file.take_edit() && !file.take_edit());
    std::fs::write(&path, "one").unwrap();
    assert!(!file.take_edit() && !file.take_edit());
}
