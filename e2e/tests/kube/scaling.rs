//! Pools that follow the load, on real nodes with real agents whose processors are limited, so that
//! two replicas do twice the work of one.

use crate::stand::{Stand, deployment};
use anyhow::{Result, ensure};
use pd_e2e::client::Client;
use pd_e2e::load::Traffic;
use pd_e2e::prompts::{greedy, ids};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

const MAX: u32 = 3;
const BUDGET: u64 = 4;
/// A phase of the load ends when what it must bring about was seen, or after this.
const PHASE: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_secs(3);
const REQUEST_LIMIT: Duration = Duration::from_secs(120);

pub(crate) fn autoscaled() -> Value {
    let pool = json!({
        "minReplicas": 1, "maxReplicas": MAX,
        "resources": {"limits": {"cpu": "250m"}, "requests": {"cpu": "50m"}},
        "args": [{"name": "disable-radix-cache"}, {"name": "max-total-tokens", "value": "4096"}],
    });
    let mut object = deployment(1, 1);
    object["spec"]["pools"] = json!({"prefill": pool, "decode": pool});
    object["spec"]["slo"] = json!({"ttftMs": 3000, "tpotMs": 60});
    object["spec"]["autoscaling"] = json!({
        "mode": "Auto", "budget": {"maxGpus": BUDGET},
        "scaleUpWindowSeconds": 5, "scaleDownWindowSeconds": 30,
    });
    object
}

/// One line of the record.
struct Row {
    at: Duration,
    prefill: u64,
    decode: u64,
    /// The newest decision.
    said: String,
}

fn look(stand: &Stand, began: Instant) -> Result<Row> {
    let status = stand.json("get pdd smollm2")?["status"].clone();
    let count = |role: &str| status["pools"][role]["desired"].as_u64().unwrap_or(0);
    let said = status["decisions"][0]["message"].as_str();
    Ok(Row {
        at: began.elapsed(),
        prefill: count("prefill"),
        decode: count("decode"),
        said: said.unwrap_or_default().to_owned(),
    })
}

/// Looks until something holds, and prints what it saw: a bar for each replica.
async fn watch(
    stand: &Stand,
    began: Instant,
    phase: &str,
    holds: impl Fn(&Row) -> bool,
) -> Result<()> {
    let until = Instant::now() + PHASE;
    let mut last = String::new();
    while Instant::now() < until {
        let row = look(stand, began)?;
        let bar = |count: u64| "#".repeat(usize::try_from(count).unwrap_or(0));
        let said = if row.said == last { "" } else { &row.said };
        eprintln!(
            "{:6.1} s  {phase:14}  P {:4} D {:4} {said}",
            row.at.as_secs_f64(),
            bar(row.prefill),
            bar(row.decode)
        );
        ensure!(row.prefill + row.decode <= BUDGET, "beyond the budget");
        if holds(&row) {
            return Ok(());
        }
        last.clone_from(&row.said);
        tokio::time::sleep(LOOK_EVERY).await;
    }
    anyhow::bail!("{phase}: not within {PHASE:?}")
}

pub(crate) async fn asks(
    stand: &Stand,
    prompt_len: usize,
    answer_len: u32,
    clients: usize,
) -> Result<Traffic> {
    let client = Client::new();
    let url = format!("{}/generate", stand.url);
    let mut known = Vec::new();
    for seed in 0..4 {
        let request = greedy(&ids(1000 + seed, prompt_len), answer_len);
        known.push(pd_e2e::load::Known::learn(&client, &url, request).await?);
    }
    Ok(Traffic::start(
        &url,
        &Arc::new(known),
        clients,
        Duration::ZERO,
    ))
}

async fn ended(traffic: Traffic, phase: &str) -> Result<()> {
    let tally = traffic.stop(REQUEST_LIMIT).await?;
    eprintln!(
        "          {phase}: {} answered, {} failed",
        tally.answered,
        tally.failures.len()
    );
    ensure!(tally.failures.is_empty(), "{:#?}", tally.failures);
    Ok(())
}

async fn phases(stand: &Stand) -> Result<()> {
    let began = Instant::now();
    let long_prompts = asks(stand, 384, 2, 6).await?;
    let seen = watch(stand, began, "long prompts", |row| row.prefill == 3).await;
    ended(long_prompts, "long prompts").await?;
    seen?;
    let long_answers = asks(stand, 16, 160, 6).await?;
    let seen = watch(stand, began, "long answers", |row| {
        row.decode >= 2 && row.prefill < 3
    })
    .await;
    ended(long_answers, "long answers").await?;
    seen?;
    watch(stand, began, "no load", |row| {
        row.prefill == 1 && row.decode == 1
    })
    .await?;
    eprintln!(
        "{}",
        stand.kubectl("get pdd smollm2 -o jsonpath={.status.decisions}")?
    );
    eprintln!(
        "{}",
        stand.kubectl("get events --field-selector reason=Scaled")?
    );
    Ok(())
}

#[tokio::test]
async fn pools_follow_the_load() -> Result<()> {
    let stand = Stand::with(&autoscaled()).await?;
    let result = phases(&stand).await;
    stand.end(result)
}
