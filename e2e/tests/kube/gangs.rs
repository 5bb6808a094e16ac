//! Two deployments on a cluster that has room for one and a half: one serves, and the other waits as a whole. First by
//! Kubernetes' own scheduler of gangs, then without any, where pods get nodes one by one and give them back.

mod kueue;

use crate::operator::{Bench, COLLECTED};
use crate::stand::holds;
use anyhow::{Context, Result, ensure};
use pd_e2e::kube::cluster::Spec;
use pd_e2e::kube::hollow::HollowNodes;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// GPUs of a node; each pod takes a node.
const GPUS: u32 = 8;
/// What waits is looked at for so long.
const WAITS: Duration = Duration::from_secs(10);
const RELEASE_AFTER_SECONDS: u64 = 10;

/// A deployment whose replicas of prefill span so many nodes, and those of decode one.
fn deployment(name: &str, nodes: u32, node_labels: [Value; 2]) -> Value {
    let [prefill, decode] = node_labels;
    let pool = |nodes: u32, labels: Value| {
        json!({
            "replicas": 1, "tp": GPUS * nodes, "nodes": nodes,
            "resources": {"limits": {"nvidia.com/gpu": GPUS.to_string()}},
            "podTemplate": {"spec": {"nodeSelector": labels}},
        })
    };
    json!({
        "apiVersion": "pdserve.io/v1alpha1",
        "kind": "PDDeployment",
        "metadata": {"name": name},
        "spec": {
            "model": {"source": {"image": {"reference": "models/deepseek-v3:1"}}},
            "engine": {"kind": "sglang", "image": "lmsysorg/sglang:v0.5"},
            "security": {"peers": "Plain"},
            "pools": {"prefill": pool(nodes, prefill), "decode": pool(1, decode)},
            "scheduling": {"releaseAfterSeconds": RELEASE_AFTER_SECONDS},
            "drain": {"timeoutSeconds": 10},
        },
    })
}

struct Gangs {
    bench: Bench,
    _hollow: HollowNodes,
}

// === impl Gangs ===

impl Gangs {
    async fn start(spec: Spec, nodes: usize) -> Result<Self> {
        Self::on(Bench::start_on(spec, &[]).await?, nodes).await
    }

    /// On so many nodes.
    async fn on(bench: Bench, nodes: usize) -> Result<Self> {
        let client = bench.cluster.kube_client().await?;
        let hollow = HollowNodes::start(client, &vec![GPUS; nodes]).await?;
        Ok(Self {
            bench,
            _hollow: hollow,
        })
    }

    fn workers(&self, name: &str) -> Result<Vec<Value>> {
        let selector = format!("pdserve.io/deployment={name},pdserve.io/replica");
        self.bench.items(&format!("get pods -l {selector}"))
    }

    /// Workers of a deployment that have a node.
    fn placed(&self, name: &str) -> Result<usize> {
        let pods = self.workers(name)?;
        let has_node = |pod: &&Value| pod["spec"]["nodeName"].is_string();
        Ok(pods.iter().filter(has_node).count())
    }

    fn serves(&self, name: &str) -> Result<bool> {
        Ok(holds(&self.status(name)?, "Ready"))
    }

    fn status(&self, name: &str) -> Result<Value> {
        Ok(self.bench.json(&format!("get pdd {name}"))?["status"].clone())
    }

    async fn becomes(&self, holds: impl Fn() -> Result<()>) -> Result<()> {
        let became = self.bench.becomes_within(COLLECTED, holds).await;
        became.with_context(|| self.story())
    }

    /// Waits until the one serves and the other holds no node.
    async fn comes_first(&self, first: &str, second: &str) -> Result<()> {
        self.becomes(|| {
            ensure!(self.serves(first)?, "{first} does not serve");
            let workers = format!("pdserve.io/deployment={first},pdserve.io/node-rank=0");
            for worker in self.bench.items(&format!("get pods -l {workers}"))? {
                let metadata = &worker["metadata"];
                let mark = &metadata["labels"]["pdserve.io/gang-whole"];
                ensure!(
                    mark == "true",
                    "{} is not of a whole gang",
                    metadata["name"]
                );
            }
            let placed = self.placed(second)?;
            ensure!(placed == 0, "{second} holds {placed} nodes");
            Ok(())
        })
        .await
    }

    /// Deletes the one, and waits until the other serves in its place.
    async fn gives_way(&self, first: &str, second: &str) -> Result<()> {
        let delete = format!("delete pdd {first} --wait=false");
        self.bench.kubectl(&delete)?;
        self.becomes(|| {
            ensure!(self.serves(second)?, "{second} does not serve");
            Ok(())
        })
        .await?;
        self.show(&format!("{first} went, {second} serves"))
    }

    /// Deletes a deployment, and waits until nothing is left of these kinds.
    async fn goes(&self, name: &str, kinds: &str) -> Result<()> {
        let delete = format!("delete pdd {name} --wait=false");
        self.bench.kubectl(&delete)?;
        self.becomes(|| {
            let left = self.bench.kubectl(&format!("get {kinds}"))?;
            ensure!(left.is_empty(), "{left} is left");
            Ok(())
        })
        .await
    }

    fn show(&self, what: &str) -> Result<()> {
        eprintln!("{what}");
        let pods = "get pdd,pods -L pdserve.io/gang -o wide";
        eprintln!("{}", self.bench.kubectl(pods)?);
        Ok(())
    }

    fn story(&self) -> String {
        let looks = [
            "get pdd,pods -o wide",
            "get events",
            "get podgroups.scheduling.k8s.io -o yaml",
            "get pdd -o yaml",
        ];
        let shown = looks.map(|look| self.bench.kubectl(look).unwrap_or_default());
        shown.join("\n")
    }
}

#[tokio::test]
async fn kubernetes_gives_a_gang_all_of_its_nodes_or_none() -> Result<()> {
    let spec = Spec {
        gangs: true,
        ..Spec::control_plane()
    };
    // Each takes three: prefill two, decode one.
    let is = Gangs::start(spec, 5).await?;
    let any = || [json!({}), json!({})];
    is.bench.apply(&deployment("vast", 5, any()))?;
    is.becomes(|| {
        let message =
            "get pdd vast -o jsonpath={.status.conditions[?(@.type==\"Progressing\")].message}";
        let message = is.bench.kubectl(message)?;
        let needs = "vast needs 48 GPUs (prefill 1 × 40, decode 1 × 8), and the cluster has 40";
        ensure!(message.starts_with(needs), "{message:?}");
        Ok(())
    })
    .await?;
    is.bench.kubectl("delete pdd vast --wait=true")?;
    for (first, second) in [("a", "b"), ("d", "c")] {
        is.bench.apply(&deployment(first, 2, any()))?;
        is.becomes(|| {
            ensure!(is.placed(first)? == 3, "{first} has not all of its nodes");
            Ok(())
        })
        .await?;
        is.bench.apply(&deployment(second, 2, any()))?;
        is.becomes(|| {
            let pods = is.workers(second)?;
            ensure!(pods.len() == 3, "{} pods of {second}", pods.len());
            let status = is.status(second)?;
            let conditions = status["conditions"].to_string();
            ensure!(conditions.contains("Unschedulable"), "{conditions}");
            Ok(())
        })
        .await?;
        is.comes_first(first, second).await?;
        tokio::time::sleep(WAITS).await;
        ensure!(is.placed(second)? == 0, "{}", is.story());
        is.show(&format!("{first} serves, {second} waits as a whole"))?;
        is.gives_way(first, second).await?;
        is.goes(second, "pdd,pods,podgroups.scheduling.k8s.io")
            .await?;
    }
    is.bench.stop()
}

/// Two racks of two nodes: each replica that spans two has one for itself.
#[tokio::test]
async fn a_replica_has_a_rack_for_itself() -> Result<()> {
    let spec = Spec {
        gangs: true,
        ..Spec::control_plane()
    };
    let is = Gangs::start(spec, 4).await?;
    let rack_of = |node: &str| {
        if matches!(node, "hollow-0" | "hollow-2") {
            "x"
        } else {
            "y"
        }
    };
    for nr in 0..4 {
        let node = format!("hollow-{nr}");
        let rack = rack_of(&node);
        is.bench
            .kubectl(&format!("label node {node} example.com/rack={rack}"))?;
    }
    let mut object = deployment("a", 2, [json!({}), json!({})]);
    let pools = &mut object["spec"]["pools"];
    pools["decode"] = pools["prefill"].clone();
    for role in ["prefill", "decode"] {
        pools[role]["topology"] = json!({"key": "example.com/rack", "exclusive": true});
    }
    is.bench.apply(&object)?;
    is.becomes(|| {
        ensure!(is.serves("a")?, "it does not serve");
        Ok(())
    })
    .await?;
    let mut racks: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for pod in is.workers("a")? {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let replica = text(&pod["metadata"]["labels"]["pdserve.io/replica"]);
        let rack = rack_of(pod["spec"]["nodeName"].as_str().unwrap_or_default());
        racks.entry(replica).or_default().insert(rack);
    }
    eprintln!("racks by replica: {racks:?}");
    let all: BTreeSet<&str> = racks.values().flatten().copied().collect();
    ensure!(racks.len() == 2 && all.len() == 2, "{racks:?}");
    ensure!(racks.values().all(|of| of.len() == 1), "{racks:?}");
    is.bench.stop()
}

#[tokio::test]
async fn without_a_scheduler_of_gangs_half_of_one_gives_its_nodes_back() -> Result<()> {
    let is = Gangs::start(Spec::control_plane(), 2).await?;
    for (first, second) in [("a", "b"), ("d", "c")] {
        // Both get a node for prefill, and then neither finds one for decode.
        let labels = |node: u32| {
            [
                json!({"prefill": node.to_string()}),
                json!({"decode": "yes"}),
            ]
        };
        for (nr, name) in [first, second].into_iter().enumerate() {
            is.bench
                .kubectl(&format!("label node hollow-{nr} prefill={nr} --overwrite"))?;
            let node = u32::try_from(nr)?;
            is.bench.apply(&deployment(name, 1, labels(node)))?;
            is.becomes(|| {
                ensure!(is.placed(name)? == 1, "{name} has no node");
                Ok(())
            })
            .await?;
            // An age is in whole seconds.
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        is.bench
            .kubectl("label node hollow-0 hollow-1 decode=yes")?;
        is.becomes(|| {
            let status = is.status(second)?;
            let conditions = status["conditions"].to_string();
            ensure!(conditions.contains("HalfPlaced"), "{conditions}");
            Ok(())
        })
        .await?;
        is.show("each holds half of what it needs")?;
        is.comes_first(first, second).await?;
        is.show(&format!("{second} gave its node back, {first} serves"))?;
        is.becomes(|| {
            let status = is.status(second)?;
            let conditions = status["conditions"].to_string();
            ensure!(conditions.contains("it tries again at"), "{conditions}");
            let pods = is.workers(second)?;
            ensure!(pods.is_empty(), "{} pods of {second}", pods.len());
            Ok(())
        })
        .await?;
        let events = is
            .bench
            .kubectl("get events --field-selector reason=NodesReleased")?;
        ensure!(
            events.contains(&format!("{second}-prefill-0-1 leaves")),
            "{events}"
        );
        ensure!(!events.contains(&format!("{first}-prefill")), "{events}");
        is.gives_way(first, second).await?;
        is.bench.kubectl("label node hollow-0 hollow-1 decode-")?;
        is.bench.kubectl("delete events --all")?;
        is.goes(second, "pdd,pods").await?;
    }
    is.bench.stop()
}
