//! `--observe-kv` and `pd-agent replay` over processes: the bits of a pair are those of one process, and where a record was
//! spoiled, the replay names the place.

use anyhow::{Context, Result, ensure};
use pd_e2e::binaries;
use pd_e2e::fleet::{FleetSpec, words};
use pd_e2e::prompts::{constrained, ragged};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The exit status of a replay, and what it said.
fn replay(folder: &Path, more: &[&str]) -> Result<(Option<i32>, String)> {
    let mut command = Command::new(binaries::binary("pd-agent"));
    let output = command.arg("replay").arg(folder).args(more).output()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    Ok((output.status.code(), text))
}

/// Changes one line of the files in the folder, which holds all of `words`; returns what is to be written back.
fn spoil(folder: &Path, words: &[&str], spoil: impl Fn(&mut Value)) -> Result<(PathBuf, String)> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let text = fs::read_to_string(&path)?;
        let is_wanted = |line: &&str| words.iter().all(|word| line.contains(word));
        let Some(line) = text.lines().find(is_wanted) else {
            continue;
        };
        let mut value: Value = serde_json::from_str(line)?;
        spoil(&mut value["seen"]);
        fs::write(&path, text.replacen(line, &value.to_string(), 1))?;
        return Ok((path, text));
    }
    anyhow::bail!("no line has {words:?}")
}

/// Another hash than the one that is there.
fn flip(hash: &mut Value) {
    let text = hash.as_str().unwrap_or_default();
    let first = if text.starts_with('0') { "1" } else { "0" };
    *hash = json!(format!("{first}{}", &text[1..]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recorded_pair_is_what_one_process_computes_and_a_spoiled_record_is_found() -> Result<()>
{
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    let mut spec = FleetSpec::new(binaries::tiny_model("tiny-qwen3-5-moe"));
    spec.agent_args = words(&format!("--page-size 16 --observe-kv {}", folder.display()));
    spec.prefill_args = words("--chunked-prefill-size 64");
    let fleet = spec.start().await?;
    let requests = ragged(&[150, 40], 12);
    let url = fleet.url("/generate");
    // One after the other: a chunk of both would end elsewhere, by which one comes first.
    for request in &requests {
        fleet.client.post(&url, request).await?;
    }
    drop(fleet);

    let (status, said) = replay(folder, &[])?;
    ensure!(status == Some(0), "{status:?}: {said}");
    // Ten pages and three, before they were sent and after; two states there, and behind each step.
    for counts in [
        "20 pages, 28 states, 12 steps",
        "6 pages, 28 states, 12 steps",
    ] {
        ensure!(said.contains(&format!("equal: {counts}")), "{said}");
    }

    for (words, spoiled, expected) in [
        (
            ["\"after_restore\"", "\"tokens\":150"],
            "/pages/3",
            "differs after restore, page 3 (tokens 48 to 63): it was right before it was sent, so its bits changed",
        ),
        (
            ["\"before_send\"", "\"first_page\":4"],
            "/pages/1",
            "differs before send, page 5 (tokens 80 to 95): prefill computed something else",
        ),
        (
            ["\"after_restore\"", "\"tokens\":40"],
            "/states/1",
            "differs after restore, state 1 behind the prompt",
        ),
        (
            ["\"step\"", "\"position\":155"],
            "/kv",
            "differs in the step of position 155, its KV",
        ),
    ] {
        let change = |seen: &mut Value| seen.pointer_mut(spoiled).into_iter().for_each(flip);
        let (path, text) = spoil(folder, &words, change)?;
        let (status, said) = replay(folder, &[])?;
        ensure!(
            status == Some(1) && said.contains(expected),
            "{status:?}, {expected}: {said}"
        );
        fs::write(path, text).context("write the record back")?;
    }

    let other = binaries::tiny_model("tiny-llama");
    let (status, said) = replay(folder, &["--model-path", &other.display().to_string()])?;
    ensure!(
        status == Some(2) && said.contains("is not what was recorded"),
        "{said}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_is_computed_again_by_its_grammar() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    let mut spec = FleetSpec::new(binaries::tiny_model("tiny-llama"));
    spec.agent_args = words(&format!("--page-size 16 --observe-kv {}", folder.display()));
    let fleet = spec.start().await?;
    // An expression and a schema, each greedy and sampled.
    let requests = constrained(&[40, 41, 42, 43], 30);
    let url = fleet.url("/generate");
    fleet.client.post_all(&url, &requests).await?;
    drop(fleet);

    let (status, said) = replay(folder, &[])?;
    ensure!(status == Some(0), "{status:?}: {said}");
    ensure!(said.matches(" equal: 6 pages").count() == 4, "{said}");

    let change = |seen: &mut Value| seen["grammar"] = json!(r#"{"regex":"[a-z"}"#);
    // Of two requests, by both legs.
    for _line in 0..4 {
        spoil(folder, &["\"admitted\"", "json_schema"], change)?;
    }
    let (status, said) = replay(folder, &[])?;
    let refused = "not compared: its grammar cannot be compiled: the regular expression";
    ensure!(
        status == Some(2) && said.matches(refused).count() == 2,
        "{status:?}: {said}"
    );
    Ok(())
}
