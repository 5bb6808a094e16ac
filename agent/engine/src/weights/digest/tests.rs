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
fn chunks_are_hashed_apart_and_then_together() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights");
    let bytes: Vec<u8> = (0..100_003u32)
        .map(|i| i.wrapping_mul(i).to_le_bytes()[1])
        .collect();
    fs::write(&path, &bytes).unwrap();
    let file = File::open(&path).unwrap();
    let len = bytes.len() as u64;
    for chunk_bytes in [1000, 4096, 99_999] {
        let digests = bytes.chunks(chunk_bytes).map(Sha256::digest);
        let expected = digest_bytes(&digests.collect::<Vec<_>>().concat());
        assert_eq!(hash(&file, len, chunk_bytes as u64).unwrap(), expected);
    }
    let whole = digest_bytes(&bytes);
    assert_eq!(
        hash(&file, len, len).unwrap(),
        whole,
        "one chunk is the file"
    );
    assert!(hash(&file, len + 1, 1000).is_err(), "it became shorter");
    fs::write(&path, "").unwrap();
    assert_eq!(hash(&file, 0, 1000).unwrap(), digest_bytes(b""));
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
