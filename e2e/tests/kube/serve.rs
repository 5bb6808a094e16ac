//! A real model on real nodes: what clients see while the deployment is scaled, rolled and disturbed.

use crate::stand::Stand;
use anyhow::{Context, Result, ensure};
use pd_e2e::load::Tally;
use serde_json::json;
use std::time::{Duration, Instant};

/// The longest request of the traffic, on two busy cores.
const REQUEST_LIMIT: Duration = Duration::from_secs(60);

/// Nothing failed, was cut off or had other tokens, over something that was done meanwhile.
fn check(what: &str, began: Instant, tally: &Tally) -> Result<()> {
    let took = began.elapsed().as_secs_f64();
    let failed = tally.failures.len();
    eprintln!(
        "{took:5.1} s  {what}: {} answered, {failed} failed",
        tally.answered
    );
    ensure!(tally.answered > 0, "{what}: no answer at all");
    ensure!(failed == 0, "{what}: {:#?}", tally.failures);
    Ok(())
}

#[tokio::test]
async fn no_request_fails_while_the_deployment_changes() -> Result<()> {
    let stand = Stand::start(1, 2).await?;
    eprintln!("{}", stand.kubectl("get pdd,pdpool,pods -o wide")?);
    let result = changes(&stand).await;
    result.with_context(|| stand.story())?;
    stand.cluster.stop()
}

async fn changes(stand: &Stand) -> Result<()> {
    let replicas = |prefill, decode| json!({"spec": {"pools": {"prefill": {"replicas": prefill}, "decode": {"replicas": decode}}}});
    let grow = async || {
        stand.edit(&replicas(3, 3))?;
        stand.settled(3, 3).await
    };
    under_load(stand, "scale out 1 -> 3", grow).await?;
    let shrink = async || {
        stand.edit(&replicas(1, 1))?;
        stand.settled(1, 1).await
    };
    under_load(stand, "scale in 3 -> 1", shrink).await?;
    let roll = async || {
        let args = json!([{"name": "chunked-prefill-size", "value": "64"}]);
        stand.edit(&json!({"spec": {"engine": {"args": args}}}))?;
        stand.settled(1, 1).await
    };
    under_load(stand, "rolling change of an engine argument", roll).await?;
    let delete_router = async || {
        let routers = stand.kubectl("get pods -l pdserve.io/role=router -o name")?;
        let router = routers.lines().next().context("a router runs")?;
        stand.kubectl(&format!("delete {router} --wait=true"))?;
        stand.settled(1, 1).await
    };
    under_load(stand, "deletion of a router pod", delete_router).await
}

async fn under_load(stand: &Stand, what: &str, change: impl AsyncFn() -> Result<()>) -> Result<()> {
    let began = Instant::now();
    let traffic = stand.traffic();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let changed = change().await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let tally = traffic.stop(REQUEST_LIMIT).await?;
    check(what, began, &tally)?;
    changed.context(what.to_owned())
}
