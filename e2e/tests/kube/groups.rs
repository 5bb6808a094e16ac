//! Replicas that span nodes: they come, serve, break and go as one.

use crate::operator::{Bench, COLLECTED};
use crate::stand::holds;
use anyhow::{Context, Result, ensure};
use pd_e2e::kube::hollow::HollowNodes;
use pd_protocol::labels::ROUTABLE_GATE;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// GPUs of a node; a replica of prefill takes two nodes, one of decode takes one.
const GPUS: u32 = 8;

fn deployment() -> Value {
    let pool = |tp: u32, nodes: u32| {
        json!({
            "replicas": 1, "tp": tp, "nodes": nodes,
            "resources": {"limits": {"nvidia.com/gpu": GPUS.to_string()}},
        })
    };
    json!({
        "apiVersion": "pdserve.io/v1alpha1",
        "kind": "PDDeployment",
        "metadata": {"name": "smollm2"},
        "spec": {
            "model": {"source": {"image": {"reference": "models/deepseek-v3:1"}}},
            "engine": {"kind": "sglang", "image": "lmsysorg/sglang:v0.5"},
            "security": {"peers": "Plain"},
            "pools": {"prefill": pool(16, 2), "decode": pool(8, 1)},
            "drain": {"timeoutSeconds": 10},
        },
    })
}

/// A pod of prefill's only replica.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Member {
    name: String,
    uid: String,
    node: String,
    rank: String,
}

struct Groups {
    bench: Bench,
    _hollow: HollowNodes,
}

// === impl Groups ===

impl Groups {
    async fn start() -> Result<Self> {
        let bench = Bench::start().await?;
        let client = bench.cluster.kube_client().await?;
        // One node is left for a successor to begin on, but not for all of it.
        let hollow = HollowNodes::start(client, &[GPUS; 4]).await?;
        bench.apply(&deployment())?;
        Ok(Self {
            bench,
            _hollow: hollow,
        })
    }

    fn prefill(&self) -> Result<Vec<Value>> {
        self.bench.items("get pods -l pdserve.io/role=prefill")
    }

    fn members(&self) -> Result<Vec<Member>> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut members: Vec<Member> = self
            .prefill()?
            .iter()
            .map(|pod| Member {
                name: text(&pod["metadata"]["name"]),
                uid: text(&pod["metadata"]["uid"]),
                node: text(&pod["spec"]["nodeName"]),
                rank: text(&pod["metadata"]["labels"]["pdserve.io/node-rank"]),
            })
            .collect();
        members.sort();
        Ok(members)
    }

    /// Waits for a replica of two pods, none of them one of `before`, that serves and is alone.
    async fn comes_whole(&self, what: &str, before: &[Member]) -> Result<Vec<Member>> {
        self.bench
            .becomes_within(COLLECTED, || {
                let members = self.members()?;
                ensure!(members.len() == 2, "{what}: {members:?}");
                let is_old = |is: &&Member| before.iter().any(|old| old.uid == is.uid);
                let old = members.iter().find(is_old);
                ensure!(old.is_none(), "{what}: {old:?} is still there");
                // The status may still be the one of the replica before.
                let pods = self.prefill()?;
                let admitted = pods.iter().any(|pod| holds(&pod["status"], ROUTABLE_GATE));
                ensure!(admitted, "{what}: not admitted yet");
                let status = self.bench.json("get pdd smollm2")?["status"].clone();
                let pool = &status["pools"]["prefill"];
                for count in ["desired", "current", "routable", "updated"] {
                    ensure!(pool[count] == 1, "{what}: {count} of {pool}");
                }
                Ok(())
            })
            .await
            .with_context(|| self.story())?;
        let members = self.members()?;
        eprintln!("{what}");
        for member in &members {
            eprintln!("    {:28} on {}", member.name, member.node);
        }
        Ok(members)
    }

    /// What the pods' own objects say.
    fn story(&self) -> String {
        let looks = ["get pdd,pods -o wide", "get events", "get pods -o yaml"];
        let shown = looks.map(|look| self.bench.kubectl(look).unwrap_or_default());
        shown.join("\n")
    }

    /// Does something to a replica that serves, and waits for the one that takes its place.
    async fn starts_again(&self, what: &str, words: &str) -> Result<()> {
        let before = self.members()?;
        let [leader, follower] = &before[..] else {
            anyhow::bail!("{what}: {before:?}");
        };
        let words = words
            .replace("LEADER", &leader.name)
            .replace("FOLLOWER", &follower.name)
            .replace("NODE", &follower.node);
        self.bench.kubectl(&words)?;
        self.comes_whole(what, &before).await?;
        Ok(())
    }
}

/// Both pods know where to meet, and only the leader is anybody's worker.
fn meet(pods: &[Value]) -> Result<()> {
    let of_rank = |rank: &str| {
        let is = |pod: &&Value| pod["metadata"]["labels"]["pdserve.io/node-rank"] == rank;
        pods.iter().find(is).context("a pod of each rank")
    };
    let flag = |pod: &Value, flag: &str| {
        let args = pod["spec"]["containers"][0]["args"].as_array().cloned();
        let mut args = args.into_iter().flatten().skip_while(|arg| arg != flag);
        args.nth(1).unwrap_or_default()
    };
    let (leader, follower) = (of_rank("0")?, of_rank("1")?);
    let name = leader["metadata"]["name"].as_str().context("a name")?;
    assert_eq!(leader["spec"]["hostname"], name);
    assert_eq!(leader["spec"]["subdomain"], "smollm2-workers");
    assert_eq!(flag(leader, "--dist-init-addr"), "$(POD_IP):29500");
    assert_eq!(
        flag(follower, "--dist-init-addr"),
        format!("{name}.smollm2-workers:29500")
    );
    for (pod, rank) in [(leader, "0"), (follower, "1")] {
        assert_eq!(flag(pod, "--node-rank"), rank);
        assert_eq!(flag(pod, "--nnodes"), "2");
    }
    let nodes: BTreeSet<String> = pods
        .iter()
        .map(|pod| pod["spec"]["nodeName"].to_string())
        .collect();
    ensure!(nodes.len() == 2, "both on {nodes:?}");
    Ok(())
}

#[tokio::test]
async fn a_replica_of_two_nodes_comes_breaks_and_goes_as_one() -> Result<()> {
    let is = Groups::start().await?;
    is.comes_whole("a replica of two nodes", &[]).await?;
    meet(&is.prefill()?)?;
    eprintln!("{}", is.bench.kubectl("get pdd,pods -o wide")?);

    let restarted = r#"{"status":{"containerStatuses":[{"name":"agent","restartCount":1}]}}"#;
    let restart = format!("patch pod FOLLOWER --subresource=status -p {restarted}");
    is.starts_again("its follower is restarted", &restart)
        .await?;
    let delete = "delete pod FOLLOWER --wait=false";
    is.starts_again("its follower is deleted", delete).await?;
    let delete = "delete pod LEADER --wait=false";
    is.starts_again("its leader is deleted", delete).await?;

    // Beside it there is room for half a successor only, so it may lack for a while.
    is.bench
        .edit(r#"{"spec": {"rollout": {"maxUnavailable": 1}}}"#)?;
    let before = is.members()?;
    let cordoned = before[1].node.clone();
    is.starts_again("its follower's node is cordoned", "cordon NODE")
        .await?;
    let after = is.members()?;
    ensure!(
        after.iter().all(|member| member.node != cordoned),
        "{after:?} on {cordoned}"
    );

    is.bench.kubectl("delete pdd smollm2 --wait=false")?;
    is.bench
        .becomes_within(COLLECTED, || {
            let left = is.bench.kubectl("get pdd,pods -o wide")?;
            ensure!(left.is_empty(), "{left} is left");
            Ok(())
        })
        .await
        .with_context(|| is.story())?;
    is.bench.stop()
}
