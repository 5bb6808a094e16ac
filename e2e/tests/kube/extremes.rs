//! Pools at the end of what they may have, agents that talk nonsense, and a clock that jumps: on hollow
//! nodes, whose pods carry any load that a proof wants.

use crate::operator::Bench;
use anyhow::{Context, Result, ensure};
use pd_e2e::kube::hollow::{HollowNodes, Load};
use pd_e2e::kube::image::compile_library;
use serde_json::{Value, json};
use std::fs;
use std::time::{Duration, Instant};
use tokio::time::sleep;

const BUDGET: u64 = 6;
/// GPUs of the node, at first.
const GPUS: u32 = 8;
const PHASE: Duration = Duration::from_secs(240);
const LOOK_EVERY: Duration = Duration::from_secs(3);
/// Longer than the window after which a pool shrinks.
const NO_SHRINK: Duration = Duration::from_secs(60);
const AT_REST: Duration = Duration::from_secs(10);

fn deployment() -> Value {
    let pool = json!({
        "minReplicas": 1, "maxReplicas": 12, "resources": {"limits": {"nvidia.com/gpu": "1"}},
    });
    json!({
        "apiVersion": "pdserve.io/v1alpha1",
        "kind": "PDDeployment",
        "metadata": {"name": "smollm2"},
        "spec": {
            "model": {"source": {"hostPath": {"path": "/models/m.gguf"}}},
            // Hollow workers have no keys.
            "security": {"peers": "Plain"},
            "pools": {"prefill": pool, "decode": pool},
            "slo": {"ttftMs": 2000, "tpotMs": 30},
            "autoscaling": {
                "mode": "Auto", "budget": {"maxGpus": BUDGET},
                "scaleUpWindowSeconds": 5, "scaleDownWindowSeconds": 30,
            },
        },
    })
}

/// An operator, hollow nodes, and the deployment on them.
struct Extremes {
    bench: Bench,
    hollow: HollowNodes,
    began: Instant,
}

/// One line of the record.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    /// Replicas asked for.
    prefill: u64,
    decode: u64,
    /// Pods that no node has room for.
    pending: usize,
    limited_by: String,
    said: String,
}

// === impl Extremes ===

impl Extremes {
    async fn start(env: &[(&str, &str)]) -> Result<Self> {
        let bench = Bench::start_with(env).await?;
        let hollow = HollowNodes::start(bench.cluster.kube_client().await?, &[GPUS]).await?;
        bench.apply(&deployment())?;
        let new = Self {
            bench,
            hollow,
            began: Instant::now(),
        };
        new.ready().await?;
        Ok(new)
    }

    async fn ready(&self) -> Result<()> {
        let query = "get pdd smollm2 -o jsonpath={.status.conditions[?(@.type=='Ready')].status}";
        self.bench
            .becomes(|| {
                let ready = self.bench.kubectl(query)?;
                ensure!(ready == "True", "Ready is {ready:?}");
                Ok(())
            })
            .await
    }

    fn set_budget(&self, gpus: u64) -> Result<()> {
        let spec = json!({"spec": {"autoscaling": {"budget": {"maxGpus": gpus}}}});
        self.bench.edit(&spec.to_string())
    }

    fn load(&self, rate: f64, input: f64, output: f64) {
        self.hollow.set_load(Load {
            rate,
            input,
            output,
        });
    }

    fn look(&self) -> Result<Row> {
        let status = self.bench.json("get pdd smollm2")?["status"].clone();
        let count = |role: &str| status["pools"][role]["desired"].as_u64().unwrap_or(0);
        let newest = &status["decisions"][0];
        let text = |field: &str| newest[field].as_str().unwrap_or_default().to_owned();
        let pending = "get pods --field-selector=status.phase=Pending -o name";
        Ok(Row {
            prefill: count("prefill"),
            decode: count("decode"),
            pending: self.bench.kubectl(pending)?.lines().count(),
            limited_by: text("limitedBy"),
            said: text("message"),
        })
    }

    fn show(&self, phase: &str, row: &Row, last: Option<&Row>) {
        let bar = |count: u64| "#".repeat(usize::try_from(count).unwrap_or(0));
        let news = last.is_none_or(|last| last.said != row.said);
        eprintln!(
            "{:6.1} s  {phase:22}  P {:8} D {:8} {}",
            self.began.elapsed().as_secs_f64(),
            bar(row.prefill),
            bar(row.decode),
            if news { &row.said } else { "" },
        );
    }

    /// Looks until something holds; prints what changes, and gives all that it saw.
    async fn watch(&self, phase: &str, holds: impl Fn(&Row) -> bool) -> Result<Vec<Row>> {
        let until = Instant::now() + PHASE;
        let mut seen: Vec<Row> = Vec::new();
        while Instant::now() < until {
            let row = self.look()?;
            if seen.last() != Some(&row) {
                self.show(phase, &row, seen.last());
                seen.push(row.clone());
            }
            if holds(&row) {
                return Ok(seen);
            }
            sleep(LOOK_EVERY).await;
        }
        let log = self.bench.operator_log();
        anyhow::bail!("{phase}: not within {PHASE:?}; {seen:#?}\n{log}")
    }

    /// Looks for a time in which nothing may hold that must not.
    async fn never(&self, phase: &str, time: Duration, fails: impl Fn(&Row) -> bool) -> Result<()> {
        let until = Instant::now() + time;
        let mut last = None;
        while Instant::now() < until {
            let row = self.look()?;
            if last.as_ref() != Some(&row) {
                self.show(phase, &row, last.as_ref());
            }
            ensure!(
                !fails(&row),
                "{phase}: {row:?}\n{}",
                self.bench.operator_log()
            );
            last = Some(row);
            sleep(LOOK_EVERY).await;
        }
        Ok(())
    }
}

/// Up to the budget, over to the other pool at the budget, beyond what nodes have, and down.
async fn at_the_end(is: &Extremes) -> Result<()> {
    is.load(30.0, 1000.0, 200.0);
    let seen = is
        .watch("long answers", |row| {
            row.prefill + row.decode == BUDGET && row.decode >= 3
        })
        .await?;
    is.load(60.0, 1000.0, 10.0);
    let mut moved = is.watch("long prompts", |row| row.prefill == 5).await?;
    moved.extend(seen);
    let beyond = moved.iter().find(|row| row.prefill + row.decode > BUDGET);
    ensure!(beyond.is_none(), "beyond the budget: {beyond:?}");

    is.set_budget(12)?;
    is.load(50.0, 1000.0, 60.0);
    is.watch("more than nodes have", |row| row.pending > 0)
        .await?;
    let conditions = is.bench.json("get pdd smollm2")?["status"]["conditions"].to_string();
    ensure!(
        conditions.contains("Insufficient nvidia.com/gpu"),
        "{conditions}"
    );
    is.watch("what nodes have", |row| {
        let all_placed = row.pending == 0 && row.prefill + row.decode == u64::from(GPUS);
        all_placed && row.limited_by == "CapacityUnavailable"
    })
    .await?;
    is.hollow.set_gpus(0, 2 * GPUS).await?;
    is.watch("nodes have more", |row| {
        row.pending == 0 && row.prefill + row.decode > u64::from(GPUS)
    })
    .await?;

    is.load(0.0, 0.0, 0.0);
    is.watch("no load", |row| (row.prefill, row.decode) == (1, 1))
        .await?;
    Ok(())
}

/// What an agent cannot mean takes no replica away, and is logged.
async fn nonsense(is: &Extremes) -> Result<()> {
    is.set_budget(BUDGET)?;
    is.load(30.0, 1000.0, 200.0);
    let grown = is
        .watch("long answers", |row| row.prefill + row.decode == BUDGET)
        .await?;
    let Some(Row {
        prefill, decode, ..
    }) = grown.last()
    else {
        return Ok(());
    };
    let pods = is
        .bench
        .kubectl("get pods -l pdserve.io/role=decode -o name")?;
    let names: Vec<&str> = pods
        .lines()
        .filter_map(|name| name.strip_prefix("pod/"))
        .collect();
    let liar = *names.first().context("a decode pod")?;
    let lies = [
        "not a metric at all {{{",
        "pdserve_num_running_reqs NaN",
        "pdserve_num_running_reqs -5",
        "pdserve_num_running_reqs 1e300",
        "",
    ];
    is.load(0.0, 0.0, 0.0);
    for lie in lies {
        is.hollow.set_said(liar, Some(lie));
        is.never(lie, NO_SHRINK / 4, |row| {
            (row.prefill, row.decode) != (*prefill, *decode)
        })
        .await?;
    }
    let log = is.bench.operator_log();
    let refusals = log.lines().filter(|line| line.contains("no load report"));
    for line in refusals {
        eprintln!("{line}");
    }
    ensure!(log.contains("is not in Prometheus' text format"), "{log}");
    is.hollow.set_said(liar, None);
    is.watch("the truth again", |row| (row.prefill, row.decode) == (1, 1))
        .await?;
    Ok(())
}

#[tokio::test]
async fn pools_stop_at_the_budget_and_at_what_nodes_have() -> Result<()> {
    let is = Extremes::start(&[]).await?;
    at_the_end(&is).await?;
    nonsense(&is).await?;
    drop(is.hollow);
    is.bench.stop()
}

/// The operator's wall clock goes an hour ahead, then an hour back: no pod is touched for that, and
/// what a user asks for is done.
#[tokio::test]
async fn a_clock_that_jumps_costs_nothing() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let library = folder.path().join("clock.so");
    compile_library(include_str!("clock.c"), &library)?;
    let clock = folder.path().join("seconds");
    fs::write(&clock, "0")?;
    let (library, clock) = (library.display().to_string(), clock.display().to_string());
    let env = [
        ("LD_PRELOAD", library.as_str()),
        ("CLOCK_FILE", clock.as_str()),
    ];
    let is = Extremes::start(&env).await?;
    let fixed = json!({"minReplicas": null, "maxReplicas": null, "replicas": 1});
    let fixed = json!({"spec": {
        "autoscaling": {"mode": "Off"}, "pools": {"prefill": fixed, "decode": fixed},
    }});
    is.bench.edit(&fixed.to_string())?;
    let uids = || {
        is.bench
            .kubectl("get pods -o jsonpath={.items[*].metadata.uid}")
    };
    let before = uids()?;
    let mut replicas = 1;
    for seconds in ["3600", "-3600", "0"] {
        fs::write(&clock, seconds)?;
        let mark = is.bench.cluster.audit_log().mark();
        sleep(AT_REST).await;
        let writes = is.bench.operator_writes(mark)?;
        eprintln!("off by {seconds:>5} s: {} writes at rest", writes.len());
        let after = uids()?;
        let kept = before.split(' ').all(|uid| after.contains(uid));
        ensure!(kept, "pods changed: {before} → {after}");
        replicas += 1;
        let patch = json!({"spec": {"pools": {"decode": {"replicas": replicas}}}});
        is.bench.edit(&patch.to_string())?;
        let began = Instant::now();
        is.bench
            .becomes(|| {
                let ready = "get pdpool smollm2-decode -o jsonpath={.status.routable}";
                let ready = is.bench.kubectl(ready)?;
                ensure!(
                    ready == replicas.to_string(),
                    "{ready} of {replicas} are routable"
                );
                Ok(())
            })
            .await?;
        eprintln!(
            "           decode → {replicas} after {:.1} s",
            began.elapsed().as_secs_f64()
        );
    }
    fs::write(&clock, "3600")?;
    is.bench
        .edit(r#"{"spec": {"pools": {"decode": {"replicas": 1}}}}"#)?;
    is.bench
        .becomes(|| {
            let pods = is
                .bench
                .kubectl("get pods -l pdserve.io/role=decode -o name")?;
            ensure!(pods.lines().count() == 1, "{pods}");
            Ok(())
        })
        .await?;
    is.ready().await?;
    drop(is.hollow);
    is.bench.stop()
}
