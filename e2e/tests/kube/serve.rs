//! A real model on real nodes: what clients see while the deployment is scaled, rolled and disturbed.

use crate::stand::{NAMESPACE, Stand, chat};
use anyhow::{Context, Result, ensure};
use pd_e2e::binaries::smollm2;
use pd_e2e::load::Tally;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The longest request of the traffic, on two busy cores.
const REQUEST_LIMIT: Duration = Duration::from_secs(60);

/// Checkpoints of one network.
const STEPS: [&str; 2] = ["step-1.gguf", "step-2.gguf"];

/// A dead process ends or moves its requests within this.
const DEAD_WITHIN: Duration = Duration::from_secs(2);
/// A lost host is noticed after 6 s; the next attempt may first try one more that is lost, 3 s.
const LOST_WITHIN: Duration = Duration::from_secs(12);

/// Nothing failed, was cut off or had other tokens, over something that was done meanwhile.
fn check(what: &str, began: Instant, tally: &Tally) -> Result<()> {
    let took = began.elapsed().as_secs_f64();
    let failed = tally.failures.len();
    eprintln!(
        "{took:5.1} s  {what}: {} answered, {failed} failed",
        tally.answered
    );
    ensure!(tally.answered > 0, "{what}: no answer at all");
    let failures = tally.failures.iter().map(|(_, why)| why);
    ensure!(failed == 0, "{what}: {:#?}", failures.collect::<Vec<_>>());
    Ok(())
}

#[tokio::test]
async fn no_request_fails_while_the_deployment_changes() -> Result<()> {
    let stand = Stand::start(1, 2).await?;
    eprintln!("{}", stand.kubectl("get pdd,pdpool,pods -o wide")?);
    let said = chat(&stand.url).await?;
    eprintln!("a chat through the Service: {said:?}");
    assert_eq!(said, stand.said, "one process says something else");
    let result = changes(&stand).await;
    stand.end(result)
}

#[tokio::test]
async fn no_request_fails_while_the_cluster_is_disturbed() -> Result<()> {
    let mut stand = Stand::start(1, 2).await?;
    let result = disturbances(&mut stand).await;
    stand.end(result)
}

#[tokio::test]
async fn what_is_lost_ends_soon_and_the_pools_heal() -> Result<()> {
    let mut stand = Stand::start(2, 2).await?;
    let result = losses(&mut stand).await;
    stand.end(result)
}

#[tokio::test]
async fn helm_upgrades_and_does_not_strand() -> Result<()> {
    let stand = Stand::start(2, 2).await?;
    let result = comings_and_goings(&stand).await;
    stand.end(result)
}

fn replicas(count: u32) -> Value {
    let pool = json!({"replicas": count});
    json!({"spec": {"pools": {"prefill": pool, "decode": pool}}})
}

fn page_size(tokens: u32) -> Value {
    json!({"spec": {"kv": {"pageSize": tokens}}})
}

fn chunks(tokens: &str) -> Value {
    let args = json!([{"name": "chunked-prefill-size", "value": tokens}]);
    json!({"spec": {"engine": {"args": args}}})
}

/// A checkpoint of a folder, in place of the model's own file.
fn weights(folder: &Path, step: &str) -> Value {
    json!({"spec": {"model": {"source": {"hostPath": {"path": folder}}, "weights": {"path": step}}}})
}

/// SmolLM2 twice: what clients are answered stays the same.
fn checkpoints(stand: &Stand) -> Result<PathBuf> {
    let folder = stand.cluster.dir().join("checkpoints");
    fs::create_dir_all(&folder)?;
    for step in STEPS {
        fs::copy(smollm2(), folder.join(step))?;
    }
    Ok(folder)
}

/// Waits for a reason of the condition of weights, and words of its message.
async fn weights_say(stand: &Stand, reason: &str, words: &str) -> Result<()> {
    stand
        .becomes(|| {
            let object = stand.json("get pdd smollm2")?;
            let mut conditions = object["status"]["conditions"]
                .as_array()
                .into_iter()
                .flatten();
            let weights = conditions.find(|is| is["type"] == "WeightsServed");
            let weights = weights.context("no condition of weights")?;
            let message = weights["message"].as_str().unwrap_or_default();
            ensure!(
                weights["reason"] == reason && message.contains(words),
                "{weights}"
            );
            Ok(())
        })
        .await
}

/// Weights that workers take while they run: first their file becomes a folder, by a rollout.
async fn retrained(stand: &Stand) -> Result<()> {
    let folder = checkpoints(stand)?;
    let by_rollout = async || {
        stand.edit(&weights(&folder, STEPS[0]))?;
        stand.settled(1, 1).await?;
        weights_say(stand, "WeightsAlike", STEPS[0]).await
    };
    under_load(stand, "weights that can be replaced", by_rollout).await?;
    let before = stand.worker_uids()?;
    let in_place = async || {
        stand.edit(&weights(&folder, STEPS[1]))?;
        weights_say(stand, "WeightsAlike", STEPS[1]).await
    };
    under_load(stand, "new weights without a restart", in_place).await?;
    ensure!(stand.worker_uids()? == before, "a worker was replaced");
    let missing = async || {
        stand.edit(&weights(&folder, "step-3.gguf"))?;
        weights_say(stand, "WeightsRefused", "step-3.gguf").await
    };
    under_load(stand, "weights that are missing", missing).await?;
    let restarts = "get pods -l pdserve.io/deployment=smollm2 -o jsonpath={.items[*].status.containerStatuses[*].restartCount}";
    let restarts = stand.kubectl(restarts)?;
    ensure!(restarts.split(' ').all(|count| count == "0"), "{restarts}");
    let events = stand.kubectl("get events --no-headers")?;
    let of_weights = events.lines().filter(|line| line.contains("Weights"));
    of_weights.for_each(|line| eprintln!("         {line}"));
    Ok(())
}

async fn changes(stand: &Stand) -> Result<()> {
    let edit = async |patch: Value, count: u32| {
        stand.edit(&patch)?;
        stand.settled(count, count).await
    };
    let grow = async || edit(replicas(3), 3).await;
    under_load(stand, "scale out 1 -> 3", grow).await?;
    let shrink = async || edit(replicas(1), 1).await;
    under_load(stand, "scale in 3 -> 1", shrink).await?;
    let roll = async || edit(chunks("64"), 1).await;
    under_load(stand, "rolling change of an engine argument", roll).await?;
    let before = stand.kv_compat()?;
    let incompatible = async || edit(page_size(64), 1).await;
    under_load(stand, "rolling change that alters kvCompat", incompatible).await?;
    ensure!(stand.kv_compat()? != before, "kvCompat is still {before}");
    let back = async || edit(page_size(16), 1).await;
    under_load(stand, "rollback", back).await?;
    ensure!(
        stand.kv_compat()? == before,
        "kvCompat is not {before} again"
    );
    let delete_router = async || {
        let routers = stand.kubectl("get pods -l pdserve.io/role=router -o name")?;
        let router = routers.lines().next().context("a router runs")?;
        stand.kubectl(&format!("delete {router} --wait=true"))?;
        stand.settled(1, 1).await
    };
    under_load(stand, "deletion of a router pod", delete_router).await?;
    retrained(stand).await
}

/// What the operator and the machines under it may go through.
async fn disturbances(stand: &mut Stand) -> Result<()> {
    let drain = async || {
        let node = "node-2";
        stand.kubectl(&format!(
            "drain {node} --ignore-daemonsets --delete-emptydir-data --timeout=120s"
        ))?;
        stand.settled(1, 1).await?;
        let left = stand.kubectl(&format!(
            "get pods -l pdserve.io/deployment --field-selector spec.nodeName={node} -o name"
        ))?;
        ensure!(left.is_empty(), "{left} is still on {node}");
        stand.kubectl(&format!("uncordon {node}"))?;
        Ok(())
    };
    under_load(stand, "kubectl drain of one of two nodes", drain).await?;
    let without_operator = async || {
        stand.edit(&replicas(2))?;
        stand.settled(2, 2).await?;
        stand.scale_operator(0).await?;
        for role in ["prefill", "decode"] {
            let pods = stand.kubectl(&format!("get pods -l pdserve.io/role={role} -o name"))?;
            let pod = pods.lines().next().context("a worker runs")?;
            stand.kubectl(&format!("delete {pod} --wait=true"))?;
        }
        stand.scale_operator(2).await?;
        stand.settled(2, 2).await
    };
    under_load(
        stand,
        "kubectl delete pod of a worker, the operator stopped",
        without_operator,
    )
    .await?;
    let killed = async || {
        stand.edit(&chunks("32"))?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        stand.kill("pd-operator run")?;
        stand.settled(2, 2).await
    };
    under_load(stand, "kill -9 of the operators in a rollout", killed).await?;
    let leader_lost = async || {
        let leader = stand.leader()?;
        stand.kubectl(&format!(
            "delete pod {leader} -n {NAMESPACE} --force --grace-period=0"
        ))?;
        stand.edit(&replicas(1))?;
        stand.settled(1, 1).await?;
        ensure!(
            stand.leader()? != leader,
            "{leader} leads though it is gone"
        );
        Ok(())
    };
    under_load(stand, "loss of the leader", leader_lost).await?;
    let began = Instant::now();
    let traffic = stand.traffic();
    stand.cluster.restart_etcd().await?;
    stand.cluster.restart_apiserver().await?;
    let settled = stand.settled(1, 1).await;
    let tally = traffic.stop(REQUEST_LIMIT).await?;
    check("restart of etcd and the apiserver", began, &tally)?;
    settled
}

/// A worker dies, or its node: what it had in flight goes on elsewhere or ends with a reason, soon.
async fn losses(stand: &mut Stand) -> Result<()> {
    let url = stand.router_on("node-1")?;
    for role in ["prefill", "decode"] {
        let traffic = stand.traffic_to(&url);
        tokio::time::sleep(Duration::from_secs(2)).await;
        let pod = stand.busiest(&url, role).await?;
        stand.kill_pod(&pod)?;
        let killed = tokio::time::Instant::now();
        tokio::time::sleep(Duration::from_secs(5)).await;
        stand.settled(2, 2).await?;
        let tally = traffic.stop(REQUEST_LIMIT).await?;
        ended_soon(
            &format!("kill -9 of a {role} pod"),
            killed,
            DEAD_WITHIN,
            &tally,
        )?;
    }
    // Clients of a router on the other node: what a lost router does to its own is the network's.
    stand.spread().await?;
    let traffic = stand.traffic_to(&url);
    tokio::time::sleep(Duration::from_secs(3)).await;
    stand.cluster.cut_link(2)?;
    let cut = tokio::time::Instant::now();
    let healed = stand.healed_on("node-1", 2).await;
    eprintln!(
        "{:5.1} s  until both pools were whole on the other node",
        cut.elapsed().as_secs_f64()
    );
    let tally = traffic.stop(REQUEST_LIMIT).await?;
    ended_soon("loss of a node", cut, LOST_WITHIN, &tally)?;
    healed?;
    stand.cluster.mend_link(2)?;
    stand.settled(2, 2).await
}

/// Every failure came soon after what caused it, and says why.
fn ended_soon(
    what: &str,
    from: tokio::time::Instant,
    within: Duration,
    tally: &Tally,
) -> Result<()> {
    let Tally { answered, failures } = tally;
    let last = failures.iter().map(|(at, _)| *at).max();
    let last = last.map_or(Duration::ZERO, |at| at.duration_since(from));
    eprintln!(
        "{what}: {answered} answered, {} failed, the last after {:.2} s",
        failures.len(),
        last.as_secs_f64()
    );
    for (_, why) in failures {
        eprintln!("         {}", why.chars().take(200).collect::<String>());
    }
    ensure!(*answered > 0, "{what}: no answer at all");
    ensure!(last < within, "{what}: failures until {last:?}");
    ensure!(
        failures
            .iter()
            .all(|(_, why)| why.contains("error") || why.contains("50")),
        "a failure without a reason"
    );
    Ok(())
}

/// Helm takes the operator to its next version without touching a worker, and does not let it go
/// while it is needed.
async fn comings_and_goings(stand: &Stand) -> Result<()> {
    let tested = ["test", "pdserve", "--namespace", NAMESPACE];
    eprintln!("{}", stand.cluster.helm(&tested)?);
    let workers = stand.worker_uids()?;
    let upgrade = async || {
        stand.helm_upgrade("podAnnotations.round=two")?;
        stand.settled(2, 2).await
    };
    under_load(stand, "upgrade of the operator by Helm", upgrade).await?;
    ensure!(
        stand.worker_uids()? == workers,
        "the upgrade replaced workers"
    );
    stand.helm_upgrade("overrides.privileged=true")?;
    let to_host_network = async || {
        let template = json!({"podTemplate": {"spec": {"hostNetwork": true}}});
        stand.edit(&json!({"spec": {"pools": {"prefill": template, "decode": template}}}))?;
        stand.settled(2, 2).await
    };
    let what = "rolling change to the nodes' own network";
    under_load(stand, what, to_host_network).await?;
    on_host_network(stand)?;
    let refused = stand.helm_uninstall().err().context("uninstalled")?;
    eprintln!("helm uninstall: {refused:#}");
    let names_count = format!("{refused:#}").contains("1 PDDeployment(s) still exist");
    ensure!(names_count, "{refused:#}");
    stand.kubectl("delete pdd smollm2 --timeout=120s")?;
    stand
        .becomes(|| {
            let kinds = "all,pdb,secrets,serviceaccounts,rolebindings,controllerrevisions,pdpools";
            for label in ["pdserve.io/deployment", "pdserve.io/shared"] {
                let left = stand.kubectl(&format!("get {kinds} -l {label} -o name"))?;
                ensure!(left.is_empty(), "{left} is left");
            }
            Ok(())
        })
        .await?;
    stand.helm_uninstall()?;
    let left = stand.kubectl(&format!(
        "get deployments,configmaps -n {NAMESPACE} -o name"
    ))?;
    ensure!(!left.contains("pdserve"), "{left} is left");
    // What can never be pulled can be uninstalled, at once.
    stand.helm_install_of("image.tag=nowhere")?;
    let began = Instant::now();
    stand.helm_uninstall()?;
    ensure!(
        began.elapsed() < Duration::from_secs(60),
        "{:?}",
        began.elapsed()
    );
    Ok(())
}

/// Four workers on two nodes' addresses, each with ports of its own.
fn on_host_network(stand: &Stand) -> Result<()> {
    let pods = stand.json("get pods --sort-by=.spec.nodeName")?;
    let mut sockets = BTreeSet::new();
    let workers = pods["items"].as_array().into_iter().flatten();
    let workers = workers.filter(|pod| pod["spec"]["hostNetwork"] == true);
    for pod in workers {
        let (ip, annotations) = (&pod["status"]["hostIP"], &pod["metadata"]["annotations"]);
        ensure!(pod["status"]["podIP"] == *ip, "{pod}");
        let first = &annotations["pdserve.io/first-port"];
        eprintln!("         {} at {ip}:{first}", pod["metadata"]["name"]);
        sockets.insert(format!("{ip}:{first}"));
    }
    ensure!(sockets.len() == 4, "{sockets:?}");
    Ok(())
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
