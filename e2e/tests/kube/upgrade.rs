//! From an earlier version to this one, by Helm, while it serves: nothing that runs is replaced for it, and what the new
//! version refuses goes on.

use crate::stand::{Charts, OPEN_FOLDERS, Stand, deployment, holds, image};
use anyhow::{Context, Result, ensure};
use pd_e2e::binaries::workspace;
use pd_e2e::kube::tools::cache;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::time::Instant;

/// The commit that is upgraded, unless the environment names another.
const EARLIER: &str = "501fc2d7577949c2a806ee7311f85cadb1eb5767";
const VARIABLE: &str = "PDSERVE_EARLIER";
const REQUEST_LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_secs(5);

#[tokio::test]
async fn an_upgrade_replaces_nothing_that_serves() -> Result<()> {
    let folder = earlier()?;
    let mut stand = Stand::bare().await?;
    stand.cluster.import(&folder.join("image.tar"))?;
    stand.cluster.import(&image()?)?;
    let charts = Charts::in_folder(&folder.join("charts"));
    stand.install(&charts, &["image.tag=earlier".to_owned()])?;
    stand.serve(&deployment(2, 2)).await?;
    let result = upgraded(&stand).await;
    stand.end(result)
}

/// Image and charts of the earlier version; the first time it is built, which takes minutes.
fn earlier() -> Result<PathBuf> {
    let commit = std::env::var(VARIABLE);
    let output = Command::new("scripts/earlier-version.sh")
        .arg(commit.as_deref().unwrap_or(EARLIER))
        .arg(cache())
        .current_dir(workspace())
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "scripts/earlier-version.sh failed");
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}

async fn upgraded(stand: &Stand) -> Result<()> {
    let began = Instant::now();
    let before = pods(stand)?;
    let traffic = stand.traffic();
    tokio::time::sleep(PAUSE).await;

    // A folder of the node, which the new version's operator allows only where its flags do.
    let ours = format!("image.tag={}", env!("CARGO_PKG_VERSION"));
    stand.upgrade(&Charts::ours(), std::slice::from_ref(&ours))?;
    stand.becomes(|| is_refused(stand)).await?;
    log(began, "upgraded; the new version refuses the spec");
    tokio::time::sleep(PAUSE).await;
    unchanged(stand, &before)?;

    let worker = stand.workers("decode")?.pop().context("a worker decodes")?;
    stand.kubectl(&format!("delete pod {worker} --wait=true"))?;
    stand.settled(2, 2).await?;
    is_refused(stand)?;
    log(
        began,
        &format!("{worker} was deleted, and has drained and a successor"),
    );

    let healed = pods(stand)?;
    stand.upgrade(&Charts::ours(), &[ours, OPEN_FOLDERS.to_owned()])?;
    stand
        .becomes(|| {
            let status = stand.json("get pdd smollm2")?["status"].clone();
            ensure!(holds(&status, "SpecValid"), "{status}");
            Ok(())
        })
        .await?;
    stand.settled(2, 2).await?;
    tokio::time::sleep(PAUSE).await;
    unchanged(stand, &healed)?;
    log(began, "folders were allowed, and the spec is valid");

    let args = json!([{"name": "chunked-prefill-size", "value": "64"}]);
    stand.edit(&json!({"spec": {"engine": {"args": args}}}))?;
    stand.settled(2, 2).await?;
    log(began, "another spec has rolled out");
    tokio::time::sleep(PAUSE).await;
    let tally = traffic.stop(REQUEST_LIMIT).await?;
    let failed = tally.failures.len();
    eprintln!("         {} answered, {failed} failed", tally.answered);
    ensure!(tally.answered > 0 && failed == 0, "{:#?}", tally.failures);
    for (name, pod) in pods(stand)? {
        eprintln!("         {name} runs {}", pod.image);
    }
    Ok(())
}

fn log(began: Instant, what: &str) {
    eprintln!("{:5.1} s  {what}", began.elapsed().as_secs_f64());
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Pod {
    uid: String,
    image: String,
}

/// Workers and routers.
fn pods(stand: &Stand) -> Result<BTreeMap<String, Pod>> {
    let pods = stand.json("get pods -l pdserve.io/deployment=smollm2")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let pods = pods["items"].as_array().into_iter().flatten();
    let pods = pods.map(|pod| {
        let (uid, image) = (
            &pod["metadata"]["uid"],
            &pod["spec"]["containers"][0]["image"],
        );
        let pod_is = Pod {
            uid: text(uid),
            image: text(image),
        };
        (text(&pod["metadata"]["name"]), pod_is)
    });
    Ok(pods.collect())
}

fn unchanged(stand: &Stand, before: &BTreeMap<String, Pod>) -> Result<()> {
    let now = pods(stand)?;
    ensure!(now == *before, "{now:#?} instead of {before:#?}");
    Ok(())
}

/// The status says which field, and all of it serves.
fn is_refused(stand: &Stand) -> Result<()> {
    let status = stand.json("get pdd smollm2")?["status"].clone();
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let mut valid = conditions.filter(|is| is["type"] == "SpecValid");
    let valid = valid.next().context("no condition SpecValid")?;
    let message = valid["message"].as_str().unwrap_or_default();
    ensure!(
        valid["status"] == "False" && message.contains("hostPath"),
        "{valid}"
    );
    ensure!(holds(&status, "Ready"), "{status}");
    Ok(())
}
