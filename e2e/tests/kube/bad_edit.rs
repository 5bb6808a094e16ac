//! An edit that the apiserver takes and the operator refuses, under load: what serves is healed,
//! drained and scaled on, and a good edit rolls out afterwards.

use crate::stand::{NAMESPACE, Stand, deployment};
use anyhow::{Context, Result, ensure};
use pd_e2e::load::Tally;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// How long the refused spec stands while requests go on.
const STANDS_FOR: Duration = Duration::from_secs(300);
/// The longest request of the traffic, on two busy cores.
const REQUEST_LIMIT: Duration = Duration::from_secs(60);
/// A dead process ends or moves its requests within this.
const DEAD_WITHIN: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_secs(2);

#[tokio::test]
async fn a_bad_edit_harms_nothing_that_serves() -> Result<()> {
    let mut object = deployment(2, 2);
    object["spec"]["autoscaling"] = json!({"mode": "External"});
    for role in ["prefill", "decode"] {
        let pool = &mut object["spec"]["pools"][role];
        pool["replicas"] = Value::Null;
        pool["minReplicas"] = json!(2);
        pool["maxReplicas"] = json!(3);
    }
    let stand = Stand::with(&object).await?;
    let result = refused_under_load(&stand).await;
    stand.end(result)
}

/// A spec that no rule of the schema knows to be wrong: only what makes pods of it does.
fn misspelt() -> Value {
    let template = json!({"spec": {"tolerationz": [{"operator": "Exists"}]}});
    json!({"spec": {"pools": {"decode": {"podTemplate": template}}}})
}

fn mended() -> Value {
    let template = json!({"spec": {
        "tolerationz": Value::Null, "tolerations": [{"operator": "Exists"}],
    }});
    json!({"spec": {"pools": {"decode": {"podTemplate": template}}}})
}

async fn refused_under_load(stand: &Stand) -> Result<()> {
    let revision = revision(stand)?;
    let traffic = stand.traffic();
    let began = Instant::now();
    tokio::time::sleep(PAUSE).await;
    stand.edit(&misspelt())?;
    stand.becomes(|| is_refused(stand, &revision)).await?;
    log(began, "the edit is refused");

    let pod = stand.workers("decode")?.pop().context("a worker decodes")?;
    stand.kill_pod(&pod)?;
    let killed = Instant::now();
    tokio::time::sleep(PAUSE).await;
    whole(stand, &revision, 2, 2).await?;
    log(began, &format!("{pod} was killed, and its pool is whole"));

    stand.kubectl("drain node-2 --ignore-daemonsets --delete-emptydir-data --timeout=120s")?;
    whole(stand, &revision, 2, 2).await?;
    stand.kubectl("uncordon node-2")?;
    log(began, "node-2 was drained");

    stand.kubectl("scale pdpool smollm2-prefill --replicas=3")?;
    whole(stand, &revision, 3, 2).await?;
    stand.kubectl("scale pdpool smollm2-prefill --replicas=2")?;
    whole(stand, &revision, 2, 2).await?;
    log(began, "prefill was scaled out and in");

    stand.kubectl(&format!(
        "rollout restart deployment/pdserve-operator -n {NAMESPACE}"
    ))?;
    stand.kubectl(&format!(
        "rollout status deployment/pdserve-operator -n {NAMESPACE} --timeout=120s"
    ))?;
    let pod = stand.workers("prefill")?.pop().context("a worker fills")?;
    stand.kubectl(&format!("delete pod {pod} --wait=true"))?;
    whole(stand, &revision, 2, 2).await?;
    log(began, "the operator was restarted, and heals what it finds");

    tokio::time::sleep(STANDS_FOR.saturating_sub(began.elapsed())).await;
    is_refused(stand, &revision)?;
    stand.edit(&mended())?;
    stand.settled(2, 2).await?;
    ensure!(
        self::revision(stand)? != revision,
        "the good edit changed no pod"
    );
    log(began, "a good edit has rolled out");
    tokio::time::sleep(PAUSE).await;
    only_the_killed_pods_streams_failed(&traffic.stop(REQUEST_LIMIT).await?, killed)
}

fn log(began: Instant, what: &str) {
    eprintln!("{:5.1} s  {what}", began.elapsed().as_secs_f64());
}

fn revision(stand: &Stand) -> Result<String> {
    stand.kubectl("get pdd smollm2 -o jsonpath={.status.revision.current}")
}

/// The status names the field, and what serves still does.
fn is_refused(stand: &Stand, serves: &str) -> Result<()> {
    let object = stand.json("get pdd smollm2")?;
    let conditions = object["status"]["conditions"].as_array();
    let find = |kind: &str| {
        let found = conditions.into_iter().flatten();
        found
            .into_iter()
            .find(|condition| condition["type"] == kind)
            .cloned()
            .with_context(|| format!("no condition {kind} in {}", object["status"]))
    };
    let valid = find("SpecValid")?;
    ensure!(valid["status"] == "False", "{valid}");
    let message = valid["message"].as_str().unwrap_or_default();
    let field = "spec.pools.decode.podTemplate.spec.tolerationz";
    ensure!(message.contains(field), "{message}");
    ensure!(find("Ready")?["status"] == "True", "{}", object["status"]);
    let now = revision(stand)?;
    ensure!(now == serves, "{now} instead of {serves}");
    Ok(())
}

async fn whole(stand: &Stand, revision: &str, prefill: u32, decode: u32) -> Result<()> {
    stand.settled(prefill, decode).await?;
    is_refused(stand, revision)
}

/// Nothing failed but what was on its way through the killed process.
fn only_the_killed_pods_streams_failed(tally: &Tally, killed: Instant) -> Result<()> {
    let Tally { answered, failures } = tally;
    eprintln!("         {answered} answered, {} failed", failures.len());
    for (at, why) in failures {
        let after = at.saturating_duration_since(killed);
        eprintln!(
            "         {:.2} s after the kill: {why}",
            after.as_secs_f64()
        );
        ensure!(*at >= killed && after < DEAD_WITHIN, "{why}");
    }
    ensure!(*answered > 0, "no answer at all");
    Ok(())
}
