//! What workers of an engine say to others than routers: nothing without their key, and their figures.

use anyhow::{Context, Result, bail, ensure};
use pd_e2e::binaries::workspace;
use pd_e2e::client::Client;
use pd_e2e::engines::{Engine, MODEL};
use pd_e2e::local::Local;
use serde_json::json;
use std::collections::BTreeSet;

/// Workers answer routers, and no one who does not know their key.
pub(crate) async fn refuse_others(engine: &Engine, local: &Local) -> Result<String> {
    let ask = json!({"model": MODEL, "messages": [{"role": "user", "content": "Hello"}]});
    let mut said = Vec::new();
    for pod in local.pods().await? {
        if pod["component"] == "router" {
            continue;
        }
        let url = pod["url"].as_str().context("a URL")?;
        let url = format!("{url}/v1/chat/completions");
        let answer = Client::new().post(&url, &ask).await;
        said.push(match answer {
            // With ours a stranger makes no connection.
            Err(_) if engine.is_ours() => "no connection".to_owned(),
            Err(error) => return Err(error.context(url)),
            Ok(answer) if answer.status == 401 => "401".to_owned(),
            Ok(answer) => bail!("{url} answers anyone: {}", answer.status),
        });
    }
    Ok(format!(
        "of the workers, a client without a key gets {}",
        said.join(", ")
    ))
}

/// What the chart's dashboard shows of an engine is exported by the one or the other worker.
pub(crate) async fn shows(engine: &Engine, local: &Local) -> Result<String> {
    let mut exported = Vec::new();
    for pod in local.pods().await? {
        let url = pod["url"].as_str().context("a URL")?;
        if pod["component"] != "router" {
            exported.push(local.metrics(url).await?);
        }
    }
    let file = workspace().join("charts/pdserve/dashboards/engines.json");
    let dashboard = std::fs::read_to_string(file)?;
    let is_of_a_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let words = dashboard.split(|c| !is_of_a_name(c));
    let wanted = words.filter(|word| word.starts_with(&format!("{}:", engine.name)));
    let wanted: BTreeSet<&str> = wanted.collect();
    for name in &wanted {
        let is_there = exported.iter().any(|metrics| metrics.has(name));
        ensure!(is_there, "no worker exports {name}");
    }
    Ok(format!(
        "{} series of its dashboard are exported",
        wanted.len()
    ))
}
