//! Facts about what is removed from a cache, and what stays.

use crate::WEIGHTS;
use crate::stand::{REPO, Stand, mk_bytes};
use bytes::Bytes;
use pd_hub::{Cache, CleanUp, Commit, Fetched, Removed};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const DAY: Duration = Duration::from_hours(24);
const SHARED: &str = "model-00002-of-00002.safetensors";

fn repo(stand: &Stand) -> PathBuf {
    stand.cache().join("models--Qwen--Tiny")
}

/// As if a commit had been asked for so many days ago.
fn age(stand: &Stand, commit: &Commit, days: u32) {
    let record = repo(stand).join(format!(".pd-fetch/{commit}.links"));
    let record = File::options().append(true).open(record).expect("a record");
    let then = SystemTime::now() - DAY * days;
    record.set_modified(then).expect("a time");
}

fn remove(stand: &Stand, keep: &[&Commit], days: u32) -> Vec<Removed> {
    let keep = keep.iter();
    let rule = CleanUp {
        keep: keep
            .map(|commit| (REPO.parse().expect("a name"), (*commit).clone()))
            .collect(),
        unused_for: DAY * days,
    };
    Cache::new(stand.cache())
        .remove_unused(&rule)
        .expect("a folder")
}

/// Two commits that have a file in common.
async fn two_commits(stand: &Stand) -> [Fetched; 2] {
    stand.push("main");
    let old = stand.fetch("main").await.expect("a model");
    let files = [
        ("config.json", Bytes::from("{}")),
        (WEIGHTS, mk_bytes("new", 5000)),
        (SHARED, mk_bytes(SHARED, 400_000)),
    ];
    stand.server.push(REPO, "main", &files);
    let new = stand.fetch("main").await.expect("a model");
    [old, new]
}

fn exists(folder: &Path, name: &str) -> bool {
    fs::metadata(folder.join(name)).is_ok()
}

#[tokio::test]
async fn what_was_not_asked_for_in_a_while_goes_and_what_it_shares_stays() {
    let stand = Stand::start().await;
    let [old, new] = two_commits(&stand).await;
    assert_eq!(remove(&stand, &[], 30), [], "both are new");
    age(&stand, &old.commit, 31);
    assert_eq!(remove(&stand, &[&old.commit], 30), [], "it is kept");
    assert_eq!(remove(&stand, &[], 32), [], "it is too young");

    let removed = remove(&stand, &[&new.commit], 30);
    let bytes = old.bytes - 400_000;
    let folder = "models--Qwen--Tiny".to_owned();
    let commit = old.commit.clone();
    let expected = Removed {
        folder,
        commit,
        bytes,
    };
    assert_eq!(removed, [expected]);
    assert!(!old.path.exists());
    assert!(exists(&new.path, SHARED) && exists(&new.path, WEIGHTS));
    assert_eq!(remove(&stand, &[], 30), [], "it is gone");
    stand
        .fetch_of(old.commit.as_str())
        .find()
        .expect_err("it is gone");
    let again = stand.fetch(old.commit.as_str()).await.expect("a model");
    assert_eq!(again, old);
}

#[tokio::test]
async fn a_fetch_makes_room_and_keeps_what_it_fetches() {
    let stand = Stand::start().await;
    let [old, new] = two_commits(&stand).await;
    age(&stand, &old.commit, 31);
    age(&stand, &new.commit, 31);
    let mut fetch = stand.fetch_of("main");
    fetch.clean_up = Some(CleanUp {
        keep: Vec::new(),
        unused_for: DAY * 30,
    });
    let before = stand.server.asked().len();
    let fetched = fetch.run(&stand.hub(None), &stand.progress).await;
    assert_eq!(fetched.expect("a model"), new);
    assert_eq!(stand.server.asked().len(), before, "it was there");
    assert!(!old.path.exists());
}

#[tokio::test]
async fn asking_for_a_commit_keeps_it() {
    let stand = Stand::start().await;
    let [old, _] = two_commits(&stand).await;
    age(&stand, &old.commit, 31);
    stand.fetch(old.commit.as_str()).await.expect("a model");
    assert_eq!(remove(&stand, &[], 30), []);
}

#[tokio::test]
async fn what_others_wrote_stays() {
    let stand = Stand::start().await;
    stand.push("main");
    let old = stand.fetch("main").await.expect("a model");
    // As if the hub's own tool had fetched the weights before.
    let link = old.path.join(WEIGHTS);
    let hash = fs::read_link(&link).expect("a link");
    let hash = hash
        .file_name()
        .and_then(|name| name.to_str())
        .expect("a hash");
    let written = repo(&stand).join(".pd-fetch/written");
    let others = fs::read_to_string(&written)
        .expect("a record")
        .replace(hash, "");
    fs::write(&written, others).expect("a record");
    fs::write(old.path.join("notes.txt"), "mine").expect("a file");
    age(&stand, &old.commit, 31);
    let removed = remove(&stand, &[], 30);
    assert_eq!(removed[0].bytes, old.bytes - 700_000);
    assert!(exists(&old.path, WEIGHTS) && exists(&old.path, "notes.txt"));
    assert!(!exists(&old.path, SHARED));
}

#[tokio::test]
async fn a_file_that_another_tool_wrote_since_stays() {
    let stand = Stand::start().await;
    stand.push("main");
    let old = stand.fetch("main").await.expect("a model");
    let blob = fs::canonicalize(old.path.join(WEIGHTS)).expect("a blob");
    let bytes = fs::read(&blob).expect("weights");
    fs::remove_file(&blob).expect("a removal");
    fs::write(&blob, bytes).expect("the same weights");
    age(&stand, &old.commit, 31);
    let removed = remove(&stand, &[], 30);
    assert_eq!(removed[0].bytes, old.bytes - 700_000);
    assert!(exists(&old.path, WEIGHTS) && !exists(&old.path, SHARED));
}

#[tokio::test]
async fn a_folder_of_other_tools_is_left_alone() {
    let stand = Stand::start().await;
    stand.push("main");
    let old = stand.fetch("main").await.expect("a model");
    fs::remove_dir_all(repo(&stand).join(".pd-fetch")).expect("a record");
    assert_eq!(remove(&stand, &[], 0), []);
    assert!(exists(&old.path, WEIGHTS));
}

#[tokio::test]
async fn nothing_is_removed_while_something_is_fetched() {
    let stand = Stand::start().await;
    let [old, _] = two_commits(&stand).await;
    age(&stand, &old.commit, 31);
    let lock = stand
        .cache()
        .join(".locks/models--Qwen--Tiny/pd-fetch.lock");
    let lock = File::open(lock).expect("a lock");
    lock.lock_shared().expect("a shared lock");
    assert_eq!(remove(&stand, &[], 30), []);
    drop(lock);
    assert_eq!(remove(&stand, &[], 30).len(), 1);
}

#[tokio::test]
async fn a_removal_that_a_crash_cut_is_gone_on_with() {
    let stand = Stand::start().await;
    let [old, _] = two_commits(&stand).await;
    age(&stand, &old.commit, 31);
    // Its links were removed, and no blob yet.
    fs::remove_dir_all(&old.path).expect("a snapshot");
    assert_eq!(remove(&stand, &[], 30)[0].bytes, old.bytes - 400_000);
}
