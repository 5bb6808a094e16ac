//! Two nodes with everything installed, as a user's cluster has it: kinds, accounts, the operator as
//! a pod, our image on every node.

mod answers;
mod charts;
pub(crate) mod hub;
mod operators;

pub(crate) use answers::{chat, chat_over};
pub(crate) use charts::Charts;

use anyhow::{Context, Result, bail, ensure};
use parking_lot::Mutex;
use pd_e2e::binaries::{smollm2, workspace};
use pd_e2e::client::Client;
use pd_e2e::fleet::eventually;
use pd_e2e::kube::cluster::{Cluster, Spec};
use pd_e2e::load::{Known, Traffic};
use pd_e2e::metrics::Metrics;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::net::SocketAddrV4;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// Pods start and leave in seconds; the rest is for two busy cores.
const SOON: Duration = Duration::from_secs(120);
const CLIENTS: usize = 4;
/// Where the operator runs.
pub(crate) const NAMESPACE: &str = "pdserve-system";
const PAUSE: Duration = Duration::from_millis(100);
/// Our model is a file of this machine.
pub(crate) const OPEN_FOLDERS: &str = "overrides.hostPaths={/}";

pub(crate) struct Stand {
    pub(crate) cluster: Cluster,
    /// Where the deployment's Service answers on this machine, once it is there.
    pub(crate) url: String,
    pub(crate) known: Arc<Vec<Known>>,
    /// What a unified agent says to [`chat`].
    pub(crate) said: String,
}

/// What a cluster has that a plain one lacks.
#[derive(Default)]
pub(crate) struct Site {
    /// Values of the operator's chart.
    pub(crate) settings: Vec<String>,
    /// Objects that are there before anything of ours.
    pub(crate) objects: Vec<Value>,
    /// Whether pods can resolve names.
    pub(crate) names: bool,
    /// Whether network policies are kept.
    pub(crate) policies: bool,
}

// === impl Stand ===

impl Stand {
    /// Installs everything and applies SmolLM2 with `replicas` of each worker.
    pub(crate) async fn start(replicas: u32, routers: u32) -> Result<Self> {
        Self::with(&deployment(replicas, routers)).await
    }

    /// Installs everything and applies a deployment.
    pub(crate) async fn with(object: &Value) -> Result<Self> {
        Self::on(&Site::default(), object).await
    }

    /// The same on a cluster of some kind.
    pub(crate) async fn on(site: &Site, object: &Value) -> Result<Self> {
        let mut stand = Self::installed(site).await?;
        stand.serve(object).await?;
        Ok(stand)
    }

    /// The same before any deployment.
    pub(crate) async fn installed(site: &Site) -> Result<Self> {
        let stand = Self::on_nodes(Spec {
            names: site.names,
            policies: site.policies,
            ..Spec::with_nodes(2)
        })
        .await?;
        stand.cluster.import(&image()?)?;
        for object in &site.objects {
            stand.apply(object)?;
        }
        let open = [OPEN_FOLDERS.to_owned()];
        stand.install(&Charts::ours(), &[&open, &site.settings[..]].concat())?;
        Ok(stand)
    }

    /// Two nodes, and nothing of ours on them.
    pub(crate) async fn bare() -> Result<Self> {
        Self::on_nodes(Spec::with_nodes(2)).await
    }

    async fn on_nodes(spec: Spec) -> Result<Self> {
        let (known, said) = answers::learn().await?;
        Ok(Self {
            cluster: Cluster::start(spec).await?,
            url: String::new(),
            known: Arc::new(known),
            said,
        })
    }

    /// Applies a deployment and waits until it serves.
    pub(crate) async fn serve(&mut self, object: &Value) -> Result<()> {
        self.apply(object)?;
        let least = |role: &str| {
            let pool = &object["spec"]["pools"][role];
            let count = pool["replicas"].as_u64().or(pool["minReplicas"].as_u64());
            count
                .and_then(|count| u32::try_from(count).ok())
                .unwrap_or(1)
        };
        self.settled(least("prefill"), least("decode")).await?;
        self.find_service()
    }

    /// Learns where the deployment's Service answers.
    pub(crate) fn find_service(&mut self) -> Result<()> {
        let service = "get service smollm2 -o jsonpath={.spec.clusterIP}:{.spec.ports[0].port}";
        let service: SocketAddrV4 = self.kubectl(service)?.parse()?;
        self.url = format!("http://{}", self.cluster.forward(service)?);
        Ok(())
    }

    pub(crate) fn traffic(&self) -> Traffic {
        self.traffic_to(&self.url)
    }

    pub(crate) fn traffic_to(&self, url: &str) -> Traffic {
        Traffic::start(&format!("{url}/generate"), &self.known, CLIENTS, PAUSE)
    }

    pub(crate) fn kubectl(&self, words: &str) -> Result<String> {
        self.cluster.kubectl(&words.split(' ').collect::<Vec<_>>())
    }

    pub(crate) fn json(&self, words: &str) -> Result<Value> {
        Ok(serde_json::from_str(
            &self.kubectl(&format!("{words} -o json"))?,
        )?)
    }

    pub(crate) fn apply(&self, object: &Value) -> Result<()> {
        let file = self.cluster.dir().join("smollm2.json");
        std::fs::write(&file, object.to_string())?;
        self.cluster
            .kubectl(&["apply", "-f", &file.display().to_string()])?;
        Ok(())
    }

    pub(crate) fn edit(&self, patch: &Value) -> Result<()> {
        let patch = patch.to_string();
        let words = ["patch", "pdd", "smollm2", "--type=merge", "-p", &patch];
        self.cluster.kubectl(&words)?;
        Ok(())
    }

    /// Waits until a Deployment's newest pods have taken the place of all others.
    pub(crate) async fn rolled_out(&self, deployment: &str) -> Result<()> {
        self.becomes(|| {
            let output = self.kubectl(&format!(
                "rollout status deployment/{deployment} --watch=false"
            ))?;
            ensure!(output.contains("successfully rolled out"), "{output}");
            Ok(())
        })
        .await
    }

    /// Waits until everything is as the spec wants it, with so many workers.
    pub(crate) async fn settled(&self, prefill: u32, decode: u32) -> Result<()> {
        self.becomes(|| self.is_settled(prefill, decode)).await
    }

    pub(crate) fn is_settled(&self, prefill: u32, decode: u32) -> Result<()> {
        self.is_whole(prefill, decode)?;
        let object = self.json("get pdd smollm2")?;
        let status = &object["status"];
        for role in ["prefill", "decode"] {
            let pool = &status["pools"][role];
            ensure!(pool["draining"] == 0, "{role} still drains: {pool}");
        }
        ensure!(holds(status, "RouterReady"), "no router: {status}");
        Ok(())
    }

    /// Waits until a node alone has so many workers of each role that serve; those of a lost node
    /// cannot go.
    pub(crate) async fn healed_on(&self, node: &str, replicas: u32) -> Result<()> {
        let place = format!("--field-selector spec.nodeName={node}");
        self.becomes(|| {
            self.is_whole(replicas, replicas)?;
            for role in ["prefill", "decode"] {
                let pods = self.json(&format!("get pods -l pdserve.io/role={role} {place}"))?;
                let pods = pods["items"].as_array().into_iter().flatten();
                let serving = pods.filter(|pod| holds(&pod["status"], "pdserve.io/routable"));
                let count = serving.count();
                ensure!(
                    count == replicas as usize,
                    "{count} {role} workers on {node}"
                );
            }
            Ok(())
        })
        .await
    }

    fn is_whole(&self, prefill: u32, decode: u32) -> Result<()> {
        let object = self.json("get pdd smollm2")?;
        let status = &object["status"];
        ensure!(
            status["observedGeneration"] == object["metadata"]["generation"],
            "the latest spec was not seen yet"
        );
        for (role, wanted) in [("prefill", prefill), ("decode", decode)] {
            let pool = &status["pools"][role];
            for count in ["desired", "current", "routable", "updated"] {
                ensure!(pool[count] == wanted, "{role} {count}: {pool}");
            }
        }
        ensure!(holds(status, "Ready"), "not Ready: {status}");
        Ok(())
    }

    /// Names of the workers of a role.
    pub(crate) fn workers(&self, role: &str) -> Result<Vec<String>> {
        let names = "-o jsonpath={.items[*].metadata.name}";
        let output = self.kubectl(&format!("get pods -l pdserve.io/role={role} {names}"))?;
        Ok(output.split_whitespace().map(str::to_owned).collect())
    }

    pub(crate) fn worker_uids(&self) -> Result<String> {
        let selector = "pdserve.io/role in (prefill, decode)";
        let uids = "jsonpath={.items[*].metadata.uid}";
        self.cluster
            .kubectl(&["get", "pods", "-l", selector, "-o", uids])
    }

    /// Where a router on a node answers on this machine.
    pub(crate) fn router_on(&mut self, node: &str) -> Result<String> {
        let output = self.kubectl(&format!(
            "get pods -l pdserve.io/role=router --field-selector spec.nodeName={node} \
             -o jsonpath={{.items[0].status.podIP}}"
        ))?;
        let port = self.cluster.forward(format!("{output}:8000").parse()?)?;
        Ok(format!("http://{port}"))
    }

    /// Sees that both roles have a worker on each node.
    pub(crate) async fn spread(&self) -> Result<()> {
        let spread = json!([{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": ["pdserve.io/revision"]}]);
        let template = |role: &str| {
            let mut constraints = spread.clone();
            constraints[0]["labelSelector"] = json!({"matchLabels": {"pdserve.io/role": role}});
            json!({"podTemplate": {"spec": {"topologySpreadConstraints": constraints}}})
        };
        self.edit(&json!({"spec": {"pools": {
            "prefill": template("prefill"), "decode": template("decode"),
        }}}))?;
        self.settled(2, 2).await?;
        for role in ["prefill", "decode"] {
            let nodes = "-o jsonpath={.items[*].spec.nodeName}";
            let output = self.kubectl(&format!("get pods -l pdserve.io/role={role} {nodes}"))?;
            let both = output.contains("node-1") && output.contains("node-2");
            ensure!(both, "{role} workers are on {output}");
        }
        Ok(())
    }

    /// The worker of a role that a router has most in flight on, once it has something.
    pub(crate) async fn busiest(&self, router: &str, role: &str) -> Result<String> {
        let client = Client::new();
        let workers = self.workers(role)?;
        let found = Mutex::new(None);
        eventually(SOON, || async {
            let metrics = Metrics::scrape(&client, router).await?;
            let load = |pod: &String| {
                let label = format!("worker=\"{pod}\"");
                metrics.sum("pd_router_worker_requests", &[&label])
            };
            let busiest = workers.iter().max_by(|a, b| load(a).total_cmp(&load(b)));
            let busiest = busiest.filter(|pod| load(pod) > 0.0);
            *found.lock() = Some(busiest.context("no worker has anything to do")?.clone());
            Ok(())
        })
        .await?;
        found.into_inner().context("found above")
    }

    /// Kills the process of a pod, as the kernel would.
    pub(crate) fn kill_pod(&self, pod: &str) -> Result<()> {
        let name = format!("POD_NAME={pod}");
        for entry in std::fs::read_dir("/proc")? {
            let path = entry?.path();
            let Ok(environment) = std::fs::read(path.join("environ")) else {
                continue;
            };
            let mut variables = environment.split(|byte| *byte == 0);
            if variables.any(|variable| variable == name.as_bytes()) {
                let pid = path.file_name().and_then(|name| name.to_str());
                let pid = pid.and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw);
                kill_process(pid.context("no process id")?, Signal::KILL)?;
                return Ok(());
            }
        }
        bail!("no process has {name}")
    }

    pub(crate) fn kv_compat(&self) -> Result<String> {
        self.kubectl("get pdd smollm2 -o jsonpath={.status.kvCompat}")
    }

    /// Kills every process whose command line contains some words, as the kernel would.
    pub(crate) fn kill(&self, words: &str) -> Result<()> {
        let killed = Command::new("pkill")
            .args(["-KILL", "-f", words])
            .status()?;
        ensure!(killed.success(), "no process runs {words:?}");
        Ok(())
    }

    pub(crate) async fn becomes(&self, check: impl Fn() -> Result<()>) -> Result<()> {
        let became = eventually(SOON, || std::future::ready(check())).await;
        became.with_context(|| self.story())
    }

    /// Ends the cluster, or prints what a person would see of it where the proof failed.
    pub(crate) fn end(self, result: Result<()>) -> Result<()> {
        result.with_context(|| self.story())?;
        self.cluster.stop()
    }

    /// What a person would look at.
    pub(crate) fn story(&self) -> String {
        let looks = [
            "get pdd,pdpool,deploy,pods -o wide",
            "get events --sort-by=.lastTimestamp",
            "logs -n pdserve-system -l app.kubernetes.io/name=pdserve --tail=60 --prefix",
            "logs -l pdserve.io/role=router --tail=40 --prefix",
            "logs -l pdserve.io/role=prefill --tail=20 --prefix",
            "logs -l pdserve.io/role=decode --tail=20 --prefix",
        ];
        let output = looks.map(|look| {
            let said = self
                .kubectl(look)
                .unwrap_or_else(|error| format!("{error:#}"));
            format!("$ kubectl {look}\n{said}")
        });
        output.join("\n")
    }
}

/// Whether a condition of a status is true.
pub(crate) fn holds(status: &Value, condition: &str) -> bool {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let mut of_type = conditions.filter(|is| is["type"] == condition);
    of_type.any(|is| is["status"] == "True")
}

pub(crate) fn image() -> Result<std::path::PathBuf> {
    let folder = workspace().join("target/image");
    let path = folder.join(format!("pdserve-{}.tar", env!("CARGO_PKG_VERSION")));
    ensure!(
        path.is_file(),
        "{} is missing; run `make image`",
        path.display()
    );
    Ok(path)
}

pub(crate) fn deployment(replicas: u32, routers: u32) -> Value {
    let pool = json!({"replicas": replicas, "args": [
        {"name": "disable-radix-cache"}, {"name": "max-total-tokens", "value": "4096"},
    ]});
    json!({
        "apiVersion": "pdserve.io/v1alpha1",
        "kind": "PDDeployment",
        "metadata": {"name": "smollm2"},
        "spec": {
            "model": {"servedModelName": "smollm2", "source": {"hostPath": {"path": smollm2()}}},
            "router": {"replicas": routers},
            "pools": {"prefill": pool, "decode": pool},
        },
    })
}
