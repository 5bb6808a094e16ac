//! Facts about sockets in a directory.

use super::*;
use std::os::unix::fs::symlink;
use tempfile::TempDir;

fn names(dir: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(dir.path()).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort_unstable();
    names
}

/// A socket whose process is dead: it was not removed.
fn mk_dead(dir: &TempDir, name: &str) -> String {
    drop(UnixListener::bind(dir.path().join(name)).unwrap());
    name.to_owned()
}

fn offer(socket_name: &str) -> ShmOffer {
    ShmOffer {
        host_id: super::super::host_id(),
        socket_name: socket_name.to_owned(),
        in_dir: true,
    }
}

#[tokio::test]
async fn a_socket_is_found_by_another_path_and_removed_with_its_listener() {
    let dir = tempfile::tempdir().unwrap();
    let listening = Listening::in_dir(dir.path()).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let link = elsewhere.path().join("link");
    symlink(dir.path(), &link).unwrap();
    assert!(connect(&listening.offer, Some(&link)).await.is_ok());
    let [name] = &names(&dir)[..] else {
        panic!("one file: {:?}", names(&dir));
    };
    assert_eq!(*name, listening.offer.socket_name);
    let file = fs::symlink_metadata(dir.path().join(name)).unwrap();
    assert_eq!(file.mode() & 0o777, 0o600);
    drop(listening);
    assert!(names(&dir).is_empty());
}

#[tokio::test]
async fn why_a_socket_is_not_reached_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let why = async |offer: &ShmOffer, dir: Option<&Path>| {
        connect(offer, dir).await.unwrap_err().to_string()
    };
    let listening = Listening::in_dir(dir.path()).unwrap();
    let message = why(&listening.offer, Some(other.path())).await;
    let named = message.contains(other.path().to_str().unwrap());
    assert!(named && message.contains("is not prefill's"), "{message}");
    let message = why(&listening.offer, None).await;
    assert!(message.contains("decode has none"), "{message}");
    for name in [
        "../x",
        "",
        "pdserve-kv-",
        "pdserve-kv-../../../../../../../../run/docker",
    ] {
        let message = why(&offer(name), Some(dir.path())).await;
        assert!(message.contains("none of pdserve's"), "{message}");
    }
    let nowhere = ShmOffer {
        in_dir: false,
        ..offer("pdserve-kv-without-a-listener")
    };
    let message = why(&nowhere, Some(dir.path())).await;
    assert!(message.contains("network namespace"), "{message}");
    assert!(message.contains("--disaggregation-shm-dir"), "{message}");
}

#[test]
fn sockets_of_dead_processes_go_and_all_else_stays() {
    let dir = tempfile::tempdir().unwrap();
    let live = Listening::in_dir(dir.path()).unwrap();
    let dead = mk_dead(&dir, &new_name());
    let starting = mk_dead(&dir, &format!("{UNFINISHED}{}", new_name()));
    let foreign = mk_dead(&dir, "another.sock");
    let file = new_name();
    fs::write(dir.path().join(&file), "no socket").unwrap();
    let link = new_name();
    symlink(dir.path().join(&foreign), dir.path().join(&link)).unwrap();
    remove_dead(dir.path()).unwrap();
    let left = names(&dir);
    assert!(!left.contains(&dead));
    for kept in [&live.offer.socket_name, &starting, &foreign, &file, &link] {
        assert!(left.contains(kept), "{kept} is gone");
    }
    let old = std::time::SystemTime::now() - UNFINISHED_MAX;
    let entry = dir.path().join(&starting);
    let times = [rustix::fs::Timespec {
        tv_sec: old
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .as_secs()
            .cast_signed(),
        tv_nsec: 0,
    }; 2];
    let times = rustix::fs::Timestamps {
        last_access: times[0],
        last_modification: times[1],
    };
    rustix::fs::utimensat(
        rustix::fs::CWD,
        &entry,
        &times,
        rustix::fs::AtFlags::empty(),
    )
    .unwrap();
    remove_dead(dir.path()).unwrap();
    assert!(!names(&dir).contains(&starting));
}

#[test]
fn a_directory_that_cannot_hold_sockets_is_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let why = |dir: &Path| Listening::in_dir(dir).err().unwrap().to_string();
    let long = PathBuf::from(format!("/{}", "x".repeat(62)));
    assert!(
        why(&long).contains("63 bytes; at most 62"),
        "{}",
        why(&long)
    );
    assert!(why(Path::new("/proc/self/status")).contains("no directory"));
    let missing = why(&dir.path().join("missing"));
    assert!(missing.contains("must exist and be writable"), "{missing}");
    // The longest path that is taken leaves room for the name.
    let fits = dir
        .path()
        .join("x".repeat(61 - dir.path().as_os_str().len()));
    fs::create_dir(&fits).unwrap();
    assert_eq!(fits.as_os_str().len(), 62);
    assert!(Listening::in_dir(&fits).is_ok());
}
