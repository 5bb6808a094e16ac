//! The hub's own client beside ours: it fetches from our server of the hub's API, which is so proven to be like the hub, and
//! each reads what the other has fetched.

use anyhow::{Context, Result, ensure};
use pd_e2e::address;
use pd_e2e::binaries::binary;
use pd_e2e::client::Client;
use pd_e2e::engines;
use pd_e2e::fleet::eventually;
use pd_e2e::process::Process;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const REPO: &str = "HuggingFaceTB/SmolLM2-135M-Instruct";
const SOON: Duration = Duration::from_secs(20);
/// Prints the folder of the model; fails where the folder's own reader finds anything wrong.
const FETCH: &str = "
import sys
from huggingface_hub import scan_cache_dir, snapshot_download
print(snapshot_download(sys.argv[1], cache_dir=sys.argv[2]))
found = scan_cache_dir(sys.argv[2])
assert not found.warnings, [str(warning) for warning in found.warnings]
";

pub(crate) async fn run() -> Result<()> {
    let model = engines::model()?;
    let address = address::fresh();
    let listen = format!("{address}:8080");
    let repo = format!("{REPO}={}", model.display());
    let args = ["--listen", &listen, "--repo", &repo].map(str::to_owned);
    let hub = Process::spawn("hub", &binary("pd-hub-server"), &args, &[])?;
    let endpoint = format!("http://{listen}");
    let list = format!("{endpoint}/api/models/{REPO}");
    eventually(SOON, || async {
        let answer = Client::new().get(&list).await?;
        // It listens before it has read its folders.
        ensure!(answer.status == 200, "{}", answer.text());
        Ok(())
    })
    .await
    .with_context(|| hub.log())?;
    let folder = tempfile::tempdir()?;
    let (theirs, ours) = (folder.path().join("theirs"), folder.path().join("ours"));

    let by_them = python(&theirs, &endpoint)?;
    let requests = asked(&hub);
    let same = pd_fetch(&theirs, &endpoint)?;
    ensure!(same == by_them, "{same} and not {by_them}");
    ensure!(
        asked(&hub) == requests,
        "what its client fetched was fetched again"
    );

    let by_us = pd_fetch(&ours, &endpoint)?;
    let requests = asked(&hub);
    let same = python(&ours, &endpoint)?;
    ensure!(same == by_us, "{same} and not {by_us}");
    ensure!(asked(&hub) == requests, "what we fetched was fetched again");
    for entry in std::fs::read_dir(&by_us)? {
        let name = entry?.file_name();
        let both = [&by_us, &by_them].map(|path| std::fs::read(Path::new(path).join(&name)));
        let [one, other] = both;
        ensure!(one? == other?, "{} differs", name.display());
    }
    eprintln!(
        "hub: its own client and pd-fetch read each other's folders, and fetch nothing again"
    );
    Ok(())
}

fn python(cache: &Path, endpoint: &str) -> Result<String> {
    let python = engines::folder()?.join("sglang/bin/python");
    let mut command = Command::new(python);
    command.args(["-c", FETCH, REPO]).arg(cache);
    folder_of(command.env("HF_HUB_DISABLE_TELEMETRY", "1"), endpoint)
}

fn pd_fetch(cache: &Path, endpoint: &str) -> Result<String> {
    let mut command = Command::new(binary("pd-fetch"));
    folder_of(command.arg(REPO).arg("--cache-dir").arg(cache), endpoint)
}

/// What a command prints: the folder of the model.
fn folder_of(command: &mut Command, endpoint: &str) -> Result<String> {
    let output = command.env("HF_ENDPOINT", endpoint).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {said}");
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Requests for files' bytes until now.
fn asked(hub: &Process) -> usize {
    hub.log().matches(" asked ").count()
}
