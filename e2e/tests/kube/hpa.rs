//! A HorizontalPodAutoscaler of the real controller manager sets the size of a pool whose replicas span two nodes, and of the
//! routers. What pods use is said by a `metrics.k8s.io` of ours; the autoscalers are those of docs/autoscaling.md.

mod usage;

use crate::operator::Bench;
use anyhow::{Context, Result, ensure};
use pd_e2e::binaries::workspace;
use pd_e2e::kube::hollow::HollowNodes;
use serde_json::{Value, json};
use std::time::Duration;
use usage::{Usage, UsageServer};

/// GPUs of a node, and of a pod.
const GPUS: u32 = 8;
/// Three replicas of prefill take six nodes, decode one.
const NODES: usize = 8;
/// The controller looks every 15 s, and finds a new kind within 30 s; hollow pods come at once.
const STEP: Duration = Duration::from_secs(180);
/// What one replica uses at exactly its target, by docs/autoscaling.md.
const TARGET_MILLIS: u64 = 600;
const ROUTER_TARGET_MILLIS: u64 = 500;

fn deployment() -> Value {
    let pool = |tp: u32, nodes: u32, replicas: u32| {
        json!({
            "replicas": replicas, "tp": tp, "nodes": nodes,
            "resources": {"limits": {"nvidia.com/gpu": GPUS.to_string()}, "requests": {"cpu": "1"}},
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
            "pools": {"prefill": pool(16, 2, 2), "decode": pool(8, 1, 1)},
            "autoscaling": {"mode": "External"},
            "drain": {"timeoutSeconds": 10},
        },
    })
}

/// The autoscalers of the document, without the wait before they shrink.
fn autoscalers() -> Result<String> {
    let file = workspace().join("docs/autoscaling.md");
    let text = std::fs::read_to_string(&file)?;
    let blocks = text.split("```yaml\n").skip(1);
    let blocks = blocks.filter_map(|rest| rest.split("```").next());
    let hpas: Vec<&str> = blocks
        .filter(|block| block.contains("HorizontalPodAutoscaler"))
        .collect();
    ensure!(
        hpas.len() == 1,
        "{} holds {} blocks",
        file.display(),
        hpas.len()
    );
    let window = "stabilizationWindowSeconds: 300";
    ensure!(hpas[0].contains(window), "no {window:?} to shorten");
    Ok(hpas[0].replace(window, "stabilizationWindowSeconds: 0"))
}

struct Scaled {
    bench: Bench,
    usage: Usage,
    _server: UsageServer,
    _hollow: HollowNodes,
}

// === impl Scaled ===

impl Scaled {
    async fn start() -> Result<Self> {
        let bench = Bench::start().await?;
        let client = bench.cluster.kube_client().await?;
        let hollow = HollowNodes::start(client.clone(), &[GPUS; NODES]).await?;
        let usage = Usage::default();
        let server = UsageServer::start(client, usage.clone()).await?;
        for object in server.objects() {
            bench.apply(&object)?;
        }
        // Not `kubectl wait`: this thread answers what the apiserver asks.
        bench
            .becomes_within(STEP, || {
                let api = bench.json("get apiservice v1beta1.metrics.k8s.io")?;
                let conditions = &api["status"]["conditions"];
                ensure!(conditions[0]["status"] == "True", "{conditions}");
                Ok(())
            })
            .await?;
        bench.apply(&deployment())?;
        let new = Self {
            bench,
            usage,
            _server: server,
            _hollow: hollow,
        };
        new.becomes("before any autoscaler", "prefill", 2).await?;
        Ok(new)
    }

    fn pods(&self, role: &str) -> Result<usize> {
        let pods = format!("get pods -l pdserve.io/role={role},!pdserve.io/leaving -o name");
        Ok(self.bench.kubectl(&pods)?.lines().count())
    }

    fn routable(&self) -> Result<u64> {
        let pool = self.bench.json("get pdpool smollm2-prefill")?;
        Ok(pool["status"]["routable"].as_u64().unwrap_or(0))
    }

    /// Waits for so many replicas that all serve: two pods for each of prefill.
    async fn becomes(&self, what: &str, role: &str, replicas: usize) -> Result<()> {
        let pods = if role == "prefill" {
            2 * replicas
        } else {
            replicas
        };
        self.bench
            .becomes_within(STEP, || {
                let (seen, routable) = (self.pods(role)?, self.routable()?);
                ensure!(seen == pods, "{what}: {seen} pods of {role}, not {pods}");
                let serves = role != "prefill" || usize::try_from(routable)? == replicas;
                ensure!(serves, "{what}: {routable} of {replicas} routable");
                Ok(())
            })
            .await
            .with_context(|| self.story())?;
        Ok(())
    }

    fn story(&self) -> String {
        let looks = ["describe hpa", "get pdd,pdp,pods -o wide", "get events"];
        let shown = looks.map(|look| self.bench.kubectl(look).unwrap_or_default());
        shown.join("\n")
    }

    /// Waits until the controller has seen a usage and decided on a size.
    async fn decides(&self, what: &str, hpa: &str, seen: &Value, replicas: u64) -> Result<()> {
        self.bench
            .becomes_within(STEP, || {
                let status = self.bench.json(&format!("get hpa {hpa}"))?["status"].clone();
                let current = &status["currentMetrics"][0]["resource"]["current"];
                let holds = seen.as_object().into_iter().flatten();
                let mut unlike = holds.filter(|(name, value)| current[name.as_str()] != **value);
                ensure!(unlike.next().is_none(), "{what}: {current} is not {seen}");
                for count in ["currentReplicas", "desiredReplicas"] {
                    ensure!(status[count] == replicas, "{what}: {count} of {status}");
                }
                Ok(())
            })
            .await
            .with_context(|| self.story())?;
        eprintln!("{what}\n{}", self.bench.kubectl("get hpa")?);
        Ok(())
    }

    /// Each size that an autoscaler set, in order.
    fn sizes(&self, hpa: &str) -> Result<Vec<String>> {
        let words = "get events --field-selector=reason=SuccessfulRescale --sort-by=.metadata.creationTimestamp";
        let all = self.bench.items(words)?;
        let own = all.iter().filter(|it| it["involvedObject"]["name"] == hpa);
        let size = |it: &Value| {
            let size = it["message"].as_str()?.strip_prefix("New size: ")?;
            Some(size.split(';').next()?.to_owned())
        };
        own.map(|it| size(it).with_context(|| format!("{it} names no size")))
            .collect()
    }
}

#[tokio::test]
async fn an_autoscaler_counts_replicas_of_two_nodes_once_and_may_own_the_routers() -> Result<()> {
    let is = Scaled::start().await?;
    is.usage.set("prefill", 2 * TARGET_MILLIS);
    is.usage.set("router", ROUTER_TARGET_MILLIS);
    let file = is.bench.cluster.dir().join("autoscalers.yaml");
    std::fs::write(&file, autoscalers()?)?;
    is.bench.kubectl(&format!("apply -f {}", file.display()))?;

    let (pool, routers) = ("smollm2-prefill", "smollm2-router");
    let at_target = json!({"averageUtilization": 60});
    let at_router_target = json!({"averageValue": "500m"});
    let what = "two replicas of two nodes at exactly their target";
    is.decides(what, pool, &at_target, 2).await?;
    is.becomes(what, "prefill", 2).await?;
    is.decides("one router at its target", routers, &at_router_target, 1)
        .await?;

    is.usage.set("prefill", 3 * TARGET_MILLIS);
    is.usage.set("router", 3 * ROUTER_TARGET_MILLIS);
    let what = "one and a half times the target, shared by three from then on";
    is.becomes(what, "prefill", 3).await?;
    is.decides(what, pool, &at_target, 3).await?;
    is.becomes("three times a router's target", "router", 3)
        .await?;
    is.decides("three routers", routers, &at_router_target, 3)
        .await?;

    is.usage.set("prefill", 0);
    is.usage.set("router", 0);
    is.becomes("no load", "prefill", 1).await?;
    let nothing = json!({"averageUtilization": 0});
    is.decides("no load", pool, &nothing, 1).await?;
    is.becomes("no load", "router", 1).await?;
    is.decides("no load", routers, &json!({"averageValue": "0"}), 1)
        .await?;
    assert_eq!(is.sizes(pool)?, ["3", "1"], "no size in between");
    assert_eq!(is.sizes(routers)?, ["3", "1"], "no size in between");
    is.bench.stop()
}
