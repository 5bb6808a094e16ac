//! The real scheduler keeps pods of a kind apart. The real Karpenter makes nodes for workers that wait, and consolidates one
//! when a neighbour leaves room on the others.
//! Its cloud makes Node objects alone; hollow kubelets run what comes to them.

use crate::operator::Bench;
use anyhow::{Context, Result, ensure};
use pd_e2e::kube::hollow::HollowNodes;
use pd_e2e::kube::tools::{self, ExtraTool};
use pd_e2e::kube::versions::KARPENTER;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// Karpenter batches for seconds, looks every 10 s, and waits 15 s before it does what it decided. Where it found nothing to
/// do it looks again after five minutes, unless pods or nodes change. Source: `Cluster.ConsolidationState`.
const STEP: Duration = Duration::from_secs(480);
/// For so long a node that pods were planned for is not emptied. Source: `nominationWindow`, twice the longest batch.
const NOMINATED: Duration = Duration::from_secs(20);
const NODE_GPUS: u32 = 4;
/// Of the nodes that its cloud makes.
const LABEL: &str = "kwok.x-k8s.io/node=fake";

fn instance_types() -> Value {
    let one = |key: &str, value: &str| json!({"key": key, "operator": "In", "values": [value]});
    let requirements = [
        one("karpenter.sh/capacity-type", "on-demand"),
        one("topology.kubernetes.io/zone", "zone-a"),
    ];
    json!([{
        "name": "gpu-4x", "architecture": "amd64", "operatingSystems": ["linux"],
        "offerings": [{"Price": 4.0, "Available": true, "Requirements": requirements}],
        "resources": {
            "cpu": "64", "memory": "512Gi", "pods": "110", "ephemeral-storage": "500Gi",
            "nvidia.com/gpu": NODE_GPUS.to_string(),
        },
    }])
}

fn node_pool() -> [Value; 2] {
    let class = json!({
        "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass",
        "metadata": {"name": "gpus"},
    });
    let reference = json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "gpus"});
    let pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "gpus"},
        "spec": {
            "disruption": {
                "consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "10s",
                "budgets": [{"nodes": "1"}],
            },
            "template": {"spec": {
                "expireAfter": "Never", "nodeClassRef": reference,
                "requirements": [
                    {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
                ],
            }},
        },
    });
    [class, pool]
}

/// Pods of another owner: one on each of three nodes takes half of it.
fn neighbour() -> Value {
    let labels = json!({"app": "neighbour"});
    let apart = json!([{
        "topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels},
    }]);
    let resources = json!({"limits": {"nvidia.com/gpu": "2"}, "requests": {"cpu": "2"}});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "neighbour"},
        "spec": {
            "replicas": 3, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {
                "affinity": {"podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": apart,
                }},
                "containers": [{"name": "trains", "image": "hollow", "resources": resources}],
            }},
        },
    })
}

fn deployment() -> Value {
    let pool = json!({
        "replicas": 3,
        "resources": {"limits": {"nvidia.com/gpu": "1"}, "requests": {"cpu": "1"}},
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
            "router": {"replicas": 2},
        },
    })
}

/// Worker → its node.
type Places = Vec<(String, String)>;

struct Elastic {
    bench: Bench,
    hollow: HollowNodes,
}

// === impl Elastic ===

impl Elastic {
    async fn start() -> Result<Self> {
        let tool = ExtraTool::ready(&tools::cache(), &KARPENTER)?;
        let mut bench = Bench::start().await?;
        for folder in &tool.folders {
            bench.kubectl(&format!("apply --server-side -f {}", folder.display()))?;
        }
        bench.kubectl("wait --for=condition=Established crd --all")?;
        let client = bench.cluster.kube_client().await?;
        let hollow = HollowNodes::adopt(client, LABEL).await?;
        let types = bench.cluster.dir().join("instance-types.json");
        std::fs::write(&types, instance_types().to_string())?;
        let kubeconfig = bench.cluster.kubeconfig();
        let command = [
            "env",
            &format!("KUBECONFIG={}", kubeconfig.display()),
            "SYSTEM_NAMESPACE=kube-system",
            &tool.program.display().to_string(),
            "--disable-leader-election=true",
            "--metrics-port=0",
            "--health-probe-port=0",
            "--instance-types-file-path",
            &types.display().to_string(),
        ];
        let command = command.map(str::to_owned).to_vec();
        bench.cluster.run("karpenter", command)?;
        for object in node_pool() {
            bench.apply(&object)?;
        }
        bench.apply(&neighbour())?;
        bench
            .becomes_within(STEP, || {
                let status = bench.json("get deployment neighbour")?["status"].clone();
                ensure!(status["readyReplicas"] == 3, "the neighbour is {status}");
                Ok(())
            })
            .await?;
        bench.apply(&deployment())?;
        Ok(Self { bench, hollow })
    }

    fn nodes(&self) -> Result<BTreeSet<String>> {
        let nodes = self.bench.items("get nodes")?;
        let name = |node: &Value| node["metadata"]["name"].as_str().map(str::to_owned);
        Ok(nodes.iter().filter_map(name).collect())
    }

    fn places(&self) -> Result<Places> {
        let workers = self
            .bench
            .items("get pods -l pdserve.io/role!=router,pdserve.io/deployment")?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let place = |pod: &Value| {
            (
                text(&pod["metadata"]["name"]),
                text(&pod["spec"]["nodeName"]),
            )
        };
        Ok(workers.iter().map(place).collect())
    }

    /// Waits until all workers serve on so many nodes, and nothing else is under way.
    async fn rests(&self, what: &str, nodes: usize) -> Result<Places> {
        self.bench
            .becomes_within(STEP, || {
                let status = self.bench.json("get pdd smollm2")?["status"].clone();
                for role in ["prefill", "decode"] {
                    let pool = &status["pools"][role];
                    ensure!(pool["routable"] == 3, "{what}: {role} is {pool}");
                    ensure!(pool["current"] == 3, "{what}: {role} is {pool}");
                    ensure!(pool["draining"] == 0, "{what}: {role} is {pool}");
                }
                let seen = self.nodes()?;
                ensure!(seen.len() == nodes, "{what}: {seen:?}, not {nodes}");
                Ok(())
            })
            .await
            .with_context(|| self.story())?;
        let places = self.places()?;
        eprintln!("{what}");
        for node in self.nodes()? {
            let on = places.iter().filter(|(_, at)| *at == node);
            let on: Vec<&str> = on.map(|(pod, _)| pod.as_str()).collect();
            eprintln!("    {node:50} {}", on.join(" "));
        }
        Ok(places)
    }

    fn story(&self) -> String {
        let looks = [
            "get nodes,nodeclaims,pdd,pods,pdb -o wide",
            "get events -A --sort-by=.metadata.creationTimestamp",
            "describe pdd smollm2",
        ];
        let shown = looks.map(|look| self.bench.kubectl(look).unwrap_or_else(|e| e.to_string()));
        let log = self.bench.cluster.dir().join("logs/karpenter.log");
        let log = std::fs::read_to_string(log).unwrap_or_default();
        format!("{}\n{log}", shown.join("\n"))
    }
}

#[tokio::test]
async fn karpenter_consolidates_a_node_whose_workers_drain_first() -> Result<()> {
    let is = Elastic::start().await?;
    let full = is
        .rests("nodes come for six workers beside a neighbour", 3)
        .await?;

    // Else it looks at one node alone, and at the others five minutes later.
    tokio::time::sleep(NOMINATED).await;

    let mark = is.bench.cluster.audit_log().mark();
    is.bench.kubectl("delete deployment neighbour")?;
    let after = is.rests("Karpenter leaves two nodes", 2).await?;
    let left = is.nodes()?;
    let stays = |pod: &str| after.iter().any(|(name, _)| name == pod);
    let moved = full.iter().filter(|(_, node)| !left.contains(node));
    let moved: Vec<&str> = moved.map(|(pod, _)| pod.as_str()).collect();
    ensure!(!moved.is_empty(), "no worker was on what went: {full:?}");
    let ended = is.hollow.ended();
    for pod in moved {
        ensure!(!stays(pod), "{pod} is still there: {after:?}");
        let end = ended.iter().find(|end| end.pod == pod);
        let end = end.with_context(|| format!("{pod} has not ended"))?;
        eprintln!("    {pod}: drained {}", end.drained);
        ensure!(end.drained, "{pod} ended before it drained\n{}", is.story());
    }
    let writes = is.bench.cluster.audit_log().writes_since(mark)?;
    let evictions = writes
        .iter()
        .filter(|write| write.resource == "pods/eviction");
    for eviction in evictions {
        eprintln!("    eviction of {}: {}", eviction.name, eviction.code);
    }
    let reasons = is.bench.kubectl(
        "get events -A --field-selector=reason=DisruptionTerminating -o jsonpath={.items[*].message}",
    )?;
    eprintln!("{reasons}");
    is.bench.stop()
}

#[tokio::test]
async fn pods_of_a_kind_go_to_nodes_of_their_own_where_there_are_enough() -> Result<()> {
    let bench = Bench::start().await?;
    let client = bench.cluster.kube_client().await?;
    let _hollow = HollowNodes::start(client, &[NODE_GPUS * 2; 3]).await?;
    bench.apply(&deployment())?;
    for (role, count) in [("prefill", 3), ("decode", 3), ("router", 2)] {
        bench
            .becomes(|| {
                let pods = bench.items(&format!("get pods -l pdserve.io/role={role}"))?;
                let nodes = pods
                    .iter()
                    .filter_map(|pod| pod["spec"]["nodeName"].as_str());
                let nodes: BTreeSet<&str> = nodes.collect();
                ensure!(
                    nodes.len() == count,
                    "{role} is on {nodes:?}, not {count} nodes"
                );
                Ok(())
            })
            .await?;
    }
    bench.stop()
}
