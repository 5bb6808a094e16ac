//! Digests of files, and what is kept of them.

use super::*;

const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

#[test]
fn a_files_digest_is_sha256_and_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weights");
    fs::write(&file, "abc").unwrap();
    let kept = folder.path().join("cache");
    let cache = DigestCache::new(Some(kept.clone()));
    assert_eq!(
        cache.spawn(vec![file.clone()]).unwrap().wait().unwrap(),
        [ABC]
    );
    assert_eq!(digest_bytes(b"abc"), ABC);

    // What is kept is believed: a different digest under the same file's name comes back.
    let entry = fs::read_dir(&kept).unwrap().next().unwrap().unwrap().path();
    let other = "0".repeat(64);
    fs::write(&entry, &other).unwrap();
    assert_eq!(cache.digest(&file).unwrap(), other);

    // Half an entry is not.
    fs::write(&entry, "ba78").unwrap();
    assert_eq!(cache.digest(&file).unwrap(), ABC);
}

#[test]
fn another_size_is_another_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weights");
    let cache = DigestCache::new(Some(folder.path().join("cache")));
    fs::write(&file, "abc").unwrap();
    let first = cache.digest(&file).unwrap();
    fs::write(&file, "abcd").unwrap();
    assert_ne!(cache.digest(&file).unwrap(), first);
}

#[test]
fn a_missing_file_is_named() {
    let error = DigestCache::new(None)
        .digest(Path::new("no/such/file"))
        .unwrap_err();
    assert!(
        error.to_string().starts_with("cannot read no/such/file"),
        "{error}"
    );
}
