//! Fetches over real connections from a server that speaks the hub's API, as it should be and with faults.

mod clean;
mod processes;
mod stand;

use bytes::Bytes;
use pd_hub::{Commit, Fetch, Hub, HubError, Phase, look_up};
use pd_hub_server::{Asked, Fault};
use stand::{MODEL, REPO, Stand, mk_bytes};
use std::fs;
use std::time::Duration;

const WEIGHTS: &str = "model-00001-of-00002.safetensors";

#[tokio::test]
async fn a_model_lies_in_the_cache_as_the_hubs_own_tools_lay_it() {
    let stand = Stand::start().await;
    let commit = stand.push("main");
    let fetched = stand.fetch("main").await.expect("a model");
    assert_eq!(fetched.commit.as_str(), commit);
    let repo = stand.cache().join("models--Qwen--Tiny");
    assert_eq!(fetched.path, repo.join("snapshots").join(&commit));
    for (path, bytes) in MODEL.map(|(path, size)| (path, mk_bytes(path, size))) {
        assert_eq!(fs::read(fetched.path.join(path)).expect(path), bytes);
    }
    let main = fs::read_to_string(repo.join("refs/main")).expect("a ref");
    assert_eq!(main, commit);
    let link = fs::read_link(fetched.path.join(WEIGHTS)).expect("a link");
    assert!(link.starts_with("../../blobs"), "{link:?}");
    let nested = fs::read_link(fetched.path.join("tokenizer/vocab.json")).expect("a link");
    assert!(nested.starts_with("../../../blobs"), "{nested:?}");
    // What no engine reads is left where it was.
    assert!(!fetched.path.join("pytorch_model.bin").exists());
}

#[tokio::test]
async fn what_is_there_is_not_fetched_again() {
    let stand = Stand::start().await;
    stand.push("main");
    stand.fetch("main").await.expect("a model");
    let before = stand.server.asked().len();
    let again = stand.fetch("main").await.expect("a model");
    assert_eq!(stand.server.asked().len(), before);
    let offline = stand.fetch_of("main").find().expect("all of it");
    assert_eq!(offline, again);
    let other = stand.fetch_of("other").find().expect_err("nothing");
    assert!(matches!(other, HubError::NotHere { .. }), "{other}");
}

#[tokio::test]
async fn a_cut_connection_is_gone_on_with_and_not_begun_again() {
    let stand = Stand::start().await;
    stand.push("main");
    stand
        .server
        .fail(WEIGHTS, &[Fault::Cut(200_000), Fault::Cut(300_000)]);
    stand.fetch("main").await.expect("a model");
    let mut asked = stand.server.asked();
    asked.retain(|asked| asked.path == WEIGHTS);
    let from: Vec<usize> = asked.iter().map(|asked| asked.from).collect();
    let [0, second, third] = from[..] else {
        panic!("{from:?}");
    };
    // Pieces that were on their way when the connection broke may be lost.
    assert!(
        second > 0 && second <= 200_000 && third > second,
        "{from:?}"
    );
}

#[tokio::test]
async fn a_server_without_ranges_begins_again() {
    let stand = Stand::start().await;
    stand.push("main");
    stand
        .server
        .fail(WEIGHTS, &[Fault::Cut(200_000), Fault::NoRange]);
    let fetched = stand.fetch("main").await.expect("a model");
    let found = fs::read(fetched.path.join(WEIGHTS)).expect("weights");
    assert_eq!(found, mk_bytes(WEIGHTS, 700_000));
}

#[tokio::test]
async fn a_file_with_a_wrong_hash_is_fetched_again_and_never_given_a_name() {
    let stand = Stand::start().await;
    stand.push("main");
    stand.server.fail(WEIGHTS, &[Fault::Corrupt]);
    let fetched = stand.fetch("main").await.expect("a model");
    let found = fs::read(fetched.path.join(WEIGHTS)).expect("weights");
    assert_eq!(found, mk_bytes(WEIGHTS, 700_000));

    let stand = Stand::start().await;
    let commit = stand.push("main");
    stand
        .server
        .fail(WEIGHTS, &[Fault::Corrupt, Fault::Corrupt, Fault::Corrupt]);
    let refused = stand.fetch("main").await.expect_err("a wrong file");
    let why = refused.to_string();
    assert!(why.starts_with(&format!("{WEIGHTS} came 3 times")), "{why}");
    let commit = Commit::parse(&commit).expect("a commit");
    let fetch = stand.fetch_of("main");
    let snapshot = fetch.cache.snapshot(&fetch.repo, &commit);
    assert!(!snapshot.join(WEIGHTS).exists());
}

#[tokio::test]
async fn a_file_that_rotted_in_the_cache_is_found_and_fetched_again() {
    let stand = Stand::start().await;
    stand.push("main");
    let fetched = stand.fetch("main").await.expect("a model");
    let path = fetched.path.join(WEIGHTS);
    let mut rotten = fs::read(&path).expect("weights");
    rotten[9] ^= 1;
    fs::write(&path, rotten).expect("a change");
    stand.fetch("main").await.expect("a model");
    assert_eq!(
        fs::read(&path).expect("weights"),
        mk_bytes(WEIGHTS, 700_000)
    );
}

#[tokio::test]
async fn a_commit_that_is_whole_and_unchanged_needs_no_hub() {
    let stand = Stand::start().await;
    let commit = stand.push("main");
    let fetched = stand.fetch("main").await.expect("a model");
    let silent = Hub::new("http://127.0.0.1:9", None).expect("a hub");
    let pinned = stand.fetch_of(&commit);
    let alone = pinned.run(&silent, &stand.progress).await;
    assert_eq!(alone.expect("a model"), fetched);
    assert_eq!(stand.progress.report().phase, Phase::Done);

    let mut one = stand.fetch_of(&commit);
    one.file = Some("tokenizer/vocab.json".to_owned());
    let alone = one.run(&silent, &stand.progress).await.expect("a file");
    assert_eq!(alone.bytes, 900);

    let path = fetched.path.join(WEIGHTS);
    fs::write(&path, b"rotten").expect("a change");
    let mended = stand.fetch(&commit).await.expect("a model");
    assert_eq!(mended, fetched);
    assert_eq!(
        fs::read(&path).expect("weights"),
        mk_bytes(WEIGHTS, 700_000)
    );
}

#[tokio::test]
async fn what_would_be_fetched_is_known_before() {
    let stand = Stand::start().await;
    let commit = stand.push("main");
    let repo = REPO.parse().expect("a name");
    let known = look_up(&stand.hub(None), &repo, "main", None).await;
    let known = known.expect("a listing");
    assert_eq!(known.0.as_str(), commit);
    assert!(!stand.cache().join("models--Qwen--Tiny").exists());
    let fetched = stand.fetch("main").await.expect("a model");
    assert_eq!(known, (fetched.commit, fetched.bytes));
}

#[tokio::test]
async fn what_another_tool_left_is_checked_and_kept() {
    let stand = Stand::start().await;
    stand.push("main");
    let fetched = stand.fetch("main").await.expect("a model");
    // Without the record of what was checked, it is as if another tool had written it.
    let repo = stand.cache().join("models--Qwen--Tiny");
    fs::remove_dir_all(repo.join(".pd-fetch")).expect("a record");
    let before = stand.server.asked().len();
    let again = stand.fetch("main").await.expect("a model");
    assert_eq!((again, stand.server.asked().len()), (fetched, before));
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_asks_for_a_pause_gets_it() {
    let stand = Stand::start().await;
    stand.push("main");
    stand.server.refuse_lists(&[(429, 7), (503, 0)]);
    let busy = Fault::Refuse {
        status: 429,
        retry_after: 11,
    };
    stand.server.fail("config.json", &[busy]);
    let began = tokio::time::Instant::now();
    stand.fetch("main").await.expect("a model");
    assert!(
        began.elapsed() >= Duration::from_secs(18),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(stand.server.lists(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_stays_busy_is_given_up_in_words() {
    let stand = Stand::start().await;
    stand.push("main");
    let busy = Fault::Refuse {
        status: 503,
        retry_after: 0,
    };
    stand.server.fail(WEIGHTS, &vec![busy; 8]);
    let refused = stand.fetch("main").await.expect_err("a busy hub");
    assert_eq!(
        refused.to_string(),
        format!(
            "{WEIGHTS} of {REPO}: the hub answers 503 Service Unavailable, 8 times in a row without a byte"
        )
    );
    assert!(!refused.is_final());
}

#[tokio::test]
async fn a_refusal_says_what_to_do() {
    let stand = Stand::start().await;
    stand.push("main");
    let hub = stand.server.endpoint();
    let unknown = Fetch {
        repo: "Qwen/Typo".parse().expect("a name"),
        ..stand.fetch_of("main")
    };
    let refused = unknown.run(&stand.hub(None), &stand.progress).await;
    assert_eq!(
        refused.expect_err("no such repository").to_string(),
        format!(
            "{hub}/ knows no repository Qwen/Typo, or it is private: check its name, or give a token \
             that may read it"
        )
    );
    let refused = stand.fetch("v9").await.expect_err("no such revision");
    assert_eq!(
        refused.to_string(),
        format!("{REPO} has no revision \"v9\": give a branch, a tag or a commit of it")
    );
    assert!(refused.is_final());

    stand.server.protect(REPO, "hf_right", false);
    let refused = stand.fetch("main").await.expect_err("a private one");
    assert!(
        refused.to_string().contains("or it is private"),
        "{refused}"
    );
    let refused = stand.fetch_with(Some("hf_wrong"), "main").await;
    assert_eq!(
        refused.expect_err("a wrong token").to_string(),
        format!(
            "{hub}/ does not accept the token given for {REPO}: check that it is whole and not revoked"
        )
    );
    stand
        .fetch_with(Some("hf_right"), "main")
        .await
        .expect("a model");
    let leaked = |asked: &Asked| asked.leaked_token;
    assert!(
        !stand.server.asked().iter().any(leaked),
        "the token went to the CDN"
    );

    stand.server.protect(REPO, "hf_right", true);
    let refused = stand.fetch_with(Some("hf_right"), "main").await;
    assert_eq!(
        refused.expect_err("a gated one").to_string(),
        format!(
            "{REPO} is gated: accept its terms at {hub}/{REPO} and give the token of the account that \
             did"
        )
    );
}

#[tokio::test]
async fn one_file_may_be_all_that_is_wanted() {
    let stand = Stand::start().await;
    stand.push("main");
    let fetch = Fetch {
        file: Some("tokenizer/vocab.json".to_owned()),
        ..stand.fetch_of("main")
    };
    let fetched = fetch.run(&stand.hub(None), &stand.progress).await;
    let fetched = fetched.expect("a file");
    let content = fs::read(&fetched.path).expect("the file itself");
    assert_eq!(content, mk_bytes("tokenizer/vocab.json", 900));
    assert_eq!(stand.server.asked().len(), 1);
    // The rest is not there, and is not said to be.
    assert_eq!(fetch.find().expect("the file"), fetched);
    let whole = stand
        .fetch_of("main")
        .find()
        .expect_err("one file is no model");
    assert!(matches!(whole, HubError::NotHere { .. }), "{whole}");
}

#[tokio::test]
async fn a_branch_that_moves_leaves_the_commit_before_it() {
    let stand = Stand::start().await;
    stand.push("main");
    let first = stand.fetch("main").await.expect("a model");
    stand.server.push(
        REPO,
        "main",
        &[
            ("config.json", Bytes::from("{}")),
            (WEIGHTS, mk_bytes("new", 5000)),
        ],
    );
    let second = stand.fetch("main").await.expect("a model");
    assert_ne!(first.commit, second.commit);
    for (fetched, size) in [(&first, 700_000), (&second, 5000)] {
        let weights = fs::metadata(fetched.path.join(WEIGHTS)).expect("weights");
        assert_eq!(weights.len(), size);
    }
    let pinned = stand.fetch(first.commit.as_str()).await.expect("a model");
    assert_eq!(pinned, first);
}
