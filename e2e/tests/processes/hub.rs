//! Models by their names on one machine: `pd-operator local` and `pd-agent` fetch them to the user's own cache, and serve
//! what is there when the hub has gone.

use crate::local::deployment;
use anyhow::{Context, Result, ensure};
use pd_crds::{PdDeployment, document};
use pd_e2e::address;
use pd_e2e::binaries::tiny_model;
use pd_e2e::client::Client;
use pd_e2e::fleet::FleetSpec;
use pd_e2e::local::{Local, RECONCILED_WITHIN};
use pd_e2e::prompts::{greedy, ids};
use pd_hub_server::HubServer;
use pd_protocol::Role;
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

const REPO: &str = "Tiny/Llama";

/// Gives a hub the files of a tiny model.
fn push(server: &HubServer) -> Result<String> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(tiny_model("tiny-llama"))? {
        let path = entry?.path();
        let name = path.file_name().context("a file's name")?;
        files.push((name.to_string_lossy().into_owned(), std::fs::read(&path)?));
    }
    let files: Vec<_> = files
        .iter()
        .map(|(name, bytes)| (name.as_str(), bytes.clone().into()))
        .collect();
    Ok(server.push(REPO, "main", &files))
}

async fn answer(base: &str) -> Result<Value> {
    let request = greedy(&ids(7, 40), 24);
    let url = format!("{base}/generate");
    let answer = Client::new().post(&url, &request).await?;
    ensure!(answer.status == 200, "{}", answer.text());
    Ok(answer.json()?["output_ids"].clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_by_its_name_is_fetched_once_and_served_when_the_hub_has_gone() -> Result<()> {
    let server = HubServer::start(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
    let commit = push(&server)?;
    let folder = tempfile::tempdir()?;
    let cache = folder.path().join("hub").display().to_string();
    let endpoint = server.endpoint();

    let mut object: PdDeployment = document::parse(&deployment("by-name", 1, 1))?;
    let source = json!({"huggingFace": {"repo": REPO, "endpoint": endpoint}});
    object.spec.model.source = serde_json::from_value(source)?;
    let env = [("HF_HUB_CACHE", cache.as_str())];
    let text = json!(object).to_string();
    let local = Local::start_with(folder.path(), &text, &env, RECONCILED_WITHIN).await?;
    let by_pair = answer(&local.base).await?;
    local.stop().await?;
    let asked = server.asked().len();
    ensure!(asked > 0, "nothing was fetched");

    let mut fleet = FleetSpec::new(PathBuf::from(REPO));
    fleet.env = vec![("HF_HUB_CACHE", cache.clone()), ("HF_ENDPOINT", endpoint)];
    let agent = fleet.start_worker(Role::Unified, address::fresh()).await?;
    let by_agent = answer(&agent.url()).await?;
    ensure!(by_agent == by_pair, "{by_agent} instead of {by_pair}");
    ensure!(server.asked().len() == asked, "it was fetched again");
    let url = format!("{}/server_info", agent.url());
    let info = Client::new().get(&url).await?.json()?;
    let path = info["model_path"].as_str().context("a path")?;
    ensure!(path.ends_with(&commit), "{path} is not of {commit}");

    drop((agent, server));
    let agent = fleet.start_worker(Role::Unified, address::fresh()).await?;
    let without_hub = answer(&agent.url()).await?;
    ensure!(without_hub == by_pair, "{without_hub} instead of {by_pair}");
    Ok(())
}
