//! `pd-fetch` as a process: killed in the middle, two at once, its progress and its last words.

use crate::stand::{MODEL, REPO, Stand, mk_bytes};
use serde_json::Value;
use std::fs;
use std::process::{Output, Stdio};
use std::time::Duration;
use tokio::process::{Child, Command};

fn command(stand: &Stand) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pd-fetch"));
    command
        .arg(REPO)
        .arg("--cache-dir")
        .arg(stand.cache())
        .env_clear()
        .env("HF_ENDPOINT", stand.server.endpoint())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

fn spawn(stand: &Stand) -> Child {
    command(stand).spawn().expect("pd-fetch")
}

async fn ended(child: Child) -> Output {
    let limit = Duration::from_secs(60);
    let output = tokio::time::timeout(limit, child.wait_with_output()).await;
    output.expect("an end in time").expect("an end")
}

fn assert_whole(stand: &Stand, output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let path = String::from_utf8_lossy(&output.stdout);
    let folder = std::path::Path::new(path.trim());
    assert!(folder.starts_with(stand.cache()), "{path}");
    for (path, size) in MODEL {
        let content = fs::read(folder.join(path)).expect(path);
        assert_eq!(content, mk_bytes(path, size), "{path}");
    }
}

#[tokio::test]
async fn one_that_was_killed_is_gone_on_with() {
    let stand = Stand::start().await;
    stand.push("main");
    stand.server.slow_down(Some(400_000));
    let mut child = spawn(&stand);
    let blobs = stand.cache().join("models--Qwen--Tiny/blobs");
    let written = || {
        let found = fs::read_dir(&blobs).into_iter().flatten().flatten();
        let sizes = found.map(|found| found.metadata().map_or(0, |found| found.len()));
        sizes.sum::<u64>()
    };
    let limit = tokio::time::Instant::now() + Duration::from_secs(60);
    while written() < 400_000 {
        assert!(tokio::time::Instant::now() < limit, "{} bytes", written());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    child.kill().await.expect("killed");
    let kept = written();
    stand.server.slow_down(None);
    let before = stand.server.asked().len();
    assert_whole(&stand, &ended(spawn(&stand)).await);
    let asked = &stand.server.asked()[before..];
    let resumed: usize = asked.iter().map(|asked| asked.from).sum();
    assert!(
        resumed > 0 && kept > 0,
        "nothing was gone on with: {asked:?}"
    );
}

#[tokio::test]
async fn two_at_once_fetch_no_file_twice() {
    let stand = Stand::start().await;
    stand.push("main");
    stand.server.slow_down(Some(1_000_000));
    let both = [spawn(&stand), spawn(&stand)];
    for child in both {
        assert_whole(&stand, &ended(child).await);
    }
    let mut asked: Vec<String> = stand.server.asked().into_iter().map(|is| is.path).collect();
    asked.sort();
    let expected: Vec<&str> = MODEL.iter().map(|(path, _)| *path).collect();
    assert_eq!(asked, expected);
}

#[tokio::test]
async fn its_outcome_is_written_for_the_one_who_started_it() {
    let stand = Stand::start().await;
    let commit = stand.push("main");
    let result = stand.cache().join("result");
    let mut started = command(&stand);
    started.arg("--result").arg(&result);
    assert_whole(&stand, &ended(started.spawn().expect("pd-fetch")).await);
    let outcome = || -> Value {
        let text = fs::read_to_string(&result).expect("an outcome");
        serde_json::from_str(&text).expect("JSON")
    };
    assert_eq!(outcome()["commit"], *commit);
    assert_eq!(outcome()["bytes"], 1_151_200);

    let mut started = command(&stand);
    started.args(["--revision", "v9"]);
    let output = ended(started.spawn().expect("pd-fetch")).await;
    assert_eq!(output.status.code(), Some(2));
    let why = "Qwen/Tiny has no revision \"v9\": give a branch, a tag or a commit of it";
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.trim(), format!("error: {why}"));

    let mut started = command(&stand);
    started.arg("--resolve");
    let output = ended(started.spawn().expect("pd-fetch")).await;
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), commit);
}

/// Runs a shell script with pd-fetch as `$FETCH`, whose cache, `$CACHE`, is a disk of its own of so many bytes; nothing
/// where this user may not mount one.
async fn on_disk_of(stand: &Stand, bytes: usize, script: &str) -> Option<String> {
    let mount = format!("mount -t tmpfs -o size={bytes} none \"$CACHE\" || exit 77\n");
    let fetch = format!(
        "{} {REPO} --cache-dir {}",
        env!("CARGO_BIN_EXE_pd-fetch"),
        stand.cache().display()
    );
    let mut command = Command::new("unshare");
    let output = command
        .args(["--map-root-user", "--mount", "sh", "-c"])
        .arg(mount + script)
        .env("FETCH", fetch)
        .env("CACHE", stand.cache())
        .env("HF_ENDPOINT", stand.server.endpoint())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    let output = ended(output.ok()?).await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.code() == Some(77) || said.contains("unshare failed") {
        eprintln!("NOT RUN: {said}");
        return None;
    }
    assert!(output.status.success(), "{said}");
    Some(said)
}

#[tokio::test]
async fn a_disk_without_room_is_refused_before_a_byte_comes() {
    let stand = Stand::start().await;
    stand.push("main");
    let script = "$FETCH; test $? = 1";
    let Some(said) = on_disk_of(&stand, 1 << 20, script).await else {
        return;
    };
    assert!(said.contains("has room for"), "{said}");
    let asked = stand.server.asked();
    assert!(
        asked.iter().all(|asked| !asked.path.contains("/resolve/")),
        "{asked:?}"
    );
}

#[tokio::test]
async fn a_disk_that_fills_up_ends_a_fetch_in_words_and_the_next_goes_on() {
    let stand = Stand::start().await;
    stand.push("main");
    stand.server.slow_down(Some(400_000));
    // Something else fills it while files come, and is removed.
    let script = "(sleep 1; cat /dev/zero >\"$CACHE/other\") 2>/dev/null &
        $FETCH; test $? = 1 || exit 1
        wait; rm \"$CACHE/other\"
        $FETCH || exit 1
        test $(du -sb \"$CACHE/models--Qwen--Tiny/blobs\" | cut -f 1) -ge 1151200";
    let Some(said) = on_disk_of(&stand, 2 << 20, script).await else {
        return;
    };
    assert!(said.contains("No space left on device"), "{said}");
    let resumed: usize = stand.server.asked().iter().map(|asked| asked.from).sum();
    assert!(resumed > 0, "nothing was gone on with");
}
