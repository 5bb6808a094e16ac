//! Two deployments in a queue of the real Kueue, whose quota is for one and a half: the first serves, the second waits as a
//! whole and says for what. A replica of the first that is lost comes back under the quota that it had.

use super::{GPUS, Gangs, deployment};
use crate::operator::{Bench, COLLECTED};
use crate::stand::holds;
use anyhow::{Context, Result, ensure};
use pd_e2e::certs::Authority;
use pd_e2e::kube::cluster::Spec;
use pd_e2e::kube::tools::{self, ExtraTool};
use pd_e2e::kube::versions::KUEUE;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// For four pods; a deployment has three.
const QUOTA: u32 = 4 * GPUS;
const NODES: usize = 6;
const QUEUE: &str = "gpus";
/// In the cluster's own network.
const PORT: u16 = 9443;
/// What must not happen is looked at for so long.
const STAYS: Duration = Duration::from_secs(20);

/// Where Kueue's own manifest says the certificates of its metrics are, which it reads without metrics, too.
const METRICS_CERTS: &str = "etc/kueue/metrics/certs";

fn configuration(folder: &Path) -> Value {
    json!({
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": "kueue-system",
        "webhook": {"host": "127.0.0.1", "port": PORT, "certDir": folder.join("certs")},
        "health": {"healthProbeBindAddress": "127.0.0.1:8081"},
        "metrics": {"bindAddress": "0"},
        "leaderElection": {"leaderElect": false},
        "internalCertManagement": {"enable": false},
        "integrations": {"frameworks": ["pod"]},
        "featureGates": {
            "VisibilityOnDemand": false, "TopologyAwareScheduling": false, "MultiKueue": false,
        },
    })
}

/// A webhook for these kinds, by its address.
fn webhook(name: &str, path: &str, ca: &str, rule: Value, namespaces: Option<Value>) -> Value {
    let mut webhook = json!({
        "name": name,
        "clientConfig": {"url": format!("https://127.0.0.1:{PORT}/{path}"), "caBundle": ca},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "rules": [rule],
    });
    if let Some(namespaces) = namespaces {
        webhook["namespaceSelector"] = namespaces;
    }
    webhook
}

/// Those of Kueue's manifest that this needs.
fn webhooks(ca: &str) -> Vec<Value> {
    let rule = |group: &str, version: &str, resources: &[&str], operations: &[&str]| {
        json!({
            "apiGroups": [group], "apiVersions": [version], "resources": resources,
            "operations": operations,
        })
    };
    let ours = || {
        let default =
            json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["default"]});
        Some(json!({"matchExpressions": [default]}))
    };
    let kinds = [
        ("clusterqueue", "clusterqueues"),
        ("resourceflavor", "resourceflavors"),
        ("workload", "workloads"),
    ];
    let verbs: [(&str, &str, &[&str]); 2] = [
        ("Mutating", "mutate", &["CREATE"]),
        ("Validating", "validate", &["CREATE", "UPDATE"]),
    ];
    let configurations = verbs.into_iter().map(|(adjective, verb, operations)| {
        let own = kinds.iter().map(|(kind, plural)| {
            let path = format!("{verb}-kueue-x-k8s-io-v1beta2-{kind}");
            let rule = rule("kueue.x-k8s.io", "v1beta2", &[plural], operations);
            webhook(&format!("{plural}.kb.io"), &path, ca, rule, None)
        });
        let pods = rule("", "v1", &["pods"], operations);
        let path = format!("{verb}--v1-pod");
        let pods = webhook("pods.kb.io", &path, ca, pods, ours());
        let webhooks: Vec<Value> = own.chain([pods]).collect();
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": format!("{adjective}WebhookConfiguration"),
            "metadata": {"name": "kueue"},
            "webhooks": webhooks,
        })
    });
    configurations.collect()
}

fn quota() -> [Value; 3] {
    let kind = |kind: &str, name: &str, spec: Value| {
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name},
            "spec": spec,
        })
    };
    let gpus = json!({"name": "nvidia.com/gpu", "nominalQuota": QUOTA.to_string()});
    let groups = json!([{
        "coveredResources": ["nvidia.com/gpu"],
        "flavors": [{"name": "default", "resources": [gpus]}],
    }]);
    [
        kind("ResourceFlavor", "default", json!({})),
        kind(
            "ClusterQueue",
            QUEUE,
            json!({"namespaceSelector": {}, "resourceGroups": groups}),
        ),
        kind("LocalQueue", QUEUE, json!({"clusterQueue": QUEUE})),
    ]
}

/// Prefill spans two nodes, decode one.
fn queued(name: &str) -> Value {
    let mut object = deployment(name, 2, [json!({}), json!({})]);
    object["spec"]["scheduling"] = json!({"gang": "Kueue", "queue": QUEUE});
    object
}

struct Queue {
    is: Gangs,
}

// === impl Queue ===

impl Queue {
    async fn start() -> Result<Self> {
        let tool = ExtraTool::ready(&tools::cache(), &KUEUE)?;
        let mut bench = Bench::start_on(Spec::control_plane(), &[]).await?;
        for folder in &tool.folders {
            bench.kubectl(&format!("apply --server-side -f {}", folder.display()))?;
        }
        bench.kubectl("wait --for=condition=Established crd --all")?;
        let folder = bench.cluster.dir().join("kueue");
        let authority = Authority::new(&folder.join("authority"))?;
        let identity = authority.server("kueue", "kueue", &["127.0.0.1"])?;
        for certs in ["certs", METRICS_CERTS] {
            let certs = folder.join(certs);
            fs::create_dir_all(&certs)?;
            fs::copy(&identity.cert, certs.join("tls.crt"))?;
            fs::copy(&identity.key, certs.join("tls.key"))?;
        }
        let config = folder.join("config.yaml");
        fs::write(&config, configuration(&folder).to_string())?;
        let lay = "mount -t overlay -o ro,lowerdir=$1:/etc overlay /etc && exec $2 --kubeconfig=$3 --config=$4";
        let paths = [
            folder.join("etc"),
            tool.program,
            bench.cluster.kubeconfig().to_owned(),
            config,
        ];
        let words = ["unshare", "--mount", "--propagation", "private", "sh", "-c"];
        let mut command: Vec<String> = words.map(str::to_owned).to_vec();
        command.extend([lay.to_owned(), "sh".to_owned()]);
        command.extend(paths.iter().map(|path| path.display().to_string()));
        bench.cluster.run("kueue", command)?;
        let ca = Command::new("base64")
            .arg("--wrap=0")
            .arg(authority.identity().cert)
            .output()?;
        for object in webhooks(&String::from_utf8(ca.stdout)?) {
            bench.apply(&object)?;
        }
        for object in quota() {
            // Until it answers, its webhooks refuse its own kinds.
            bench
                .becomes_within(COLLECTED, || bench.apply(&object))
                .await?;
        }
        // It looks once at what there is.
        bench.restart_operator().await?;
        let is = Gangs::on(bench, NODES).await?;
        Ok(Self { is })
    }

    /// Names and UIDs of workers that have a node.
    fn placed(&self, name: &str) -> Result<Vec<(String, String)>> {
        let pods = self.is.workers(name)?.into_iter();
        let placed = pods.filter(|pod| pod["spec"]["nodeName"].is_string());
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok(placed
            .map(|pod| {
                (
                    text(&pod["metadata"]["name"]),
                    text(&pod["metadata"]["uid"]),
                )
            })
            .collect())
    }

    async fn serves(&self, name: &str, pods: usize) -> Result<()> {
        self.becomes(|| {
            let placed = self.placed(name)?;
            ensure!(placed.len() == pods, "{name} has {placed:?}");
            let status = self.is.status(name)?;
            ensure!(holds(&status, "Ready"), "{name} does not serve: {status}");
            ensure!(!holds(&status, "Progressing"), "{name} moves: {status}");
            Ok(())
        })
        .await
    }

    async fn waits(&self, name: &str, for_what: &str) -> Result<()> {
        self.becomes(|| {
            let said = self.progressing(name)?;
            ensure!(said.starts_with("Queued: "), "{name}: {said}");
            ensure!(said.contains(for_what), "{name}: {said}");
            let placed = self.placed(name)?;
            ensure!(placed.is_empty(), "{name} holds {placed:?}");
            Ok(())
        })
        .await?;
        eprintln!("{}", self.progressing(name)?);
        Ok(())
    }

    fn progressing(&self, name: &str) -> Result<String> {
        let status = self.is.status(name)?;
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|it| it["type"] == "Progressing");
        let found = found.context("no condition Progressing")?;
        let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
        Ok(format!("{}: {}", text("reason"), text("message")))
    }

    async fn becomes(&self, holds: impl Fn() -> Result<()>) -> Result<()> {
        let became = self.is.becomes(holds).await;
        became.with_context(|| self.workloads("yaml"))
    }

    /// Loses a replica of the first pair with no quota left, and sees that all of the deployment is as large again, for good.
    async fn loses_one_of_the_pair(&self, name: &str, role: &str) -> Result<()> {
        let (pod, uid) = self.one_of_the_pair(name, role)?;
        self.is
            .bench
            .kubectl(&format!("delete pod {pod} --wait=false"))?;
        self.becomes(|| {
            let placed = self.placed(name)?;
            let (successor, its_uid) = self.one_of_the_pair(name, role)?;
            let is_gone = its_uid != uid && placed.iter().all(|(_, other)| *other != uid);
            ensure!(is_gone, "{pod} is there, and so is {successor}");
            Ok(())
        })
        .await?;
        self.serves(name, 4).await?;
        let before = self.placed(name)?;
        tokio::time::sleep(STAYS).await;
        let after = self.placed(name)?;
        ensure!(
            before == after,
            "{before:?}, and then {after:?}: {}",
            self.is.story()
        );
        self.show(&format!("{name} lost {pod}"))
    }

    fn show(&self, what: &str) -> Result<()> {
        self.is.show(what)?;
        eprintln!("{}", self.workloads("wide"));
        Ok(())
    }

    fn workloads(&self, form: &str) -> String {
        let look = format!("get workloads.kueue.x-k8s.io -o {form}");
        self.is.bench.kubectl(&look).unwrap_or_default()
    }

    /// Name and UID of the leader of a role's replica that is of the first pair.
    fn one_of_the_pair(&self, name: &str, role: &str) -> Result<(String, String)> {
        let selector = format!("pdserve.io/deployment={name},pdserve.io/role={role}");
        let leaders = format!("get pods -l {selector},pdserve.io/node-rank=0");
        let pods = self.is.bench.items(&leaders)?;
        let is_of_pair =
            |pod: &&Value| pod["metadata"]["annotations"]["pdserve.io/gang-size"] == "3";
        let found = pods.iter().find(is_of_pair).context("none of the pair")?;
        let text = |field: &str| {
            found["metadata"][field]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        Ok((text("name"), text("uid")))
    }
}

#[tokio::test]
async fn a_deployment_waits_in_a_queue_as_a_whole_and_keeps_its_quota() -> Result<()> {
    let queue = Queue::start().await?;
    let bench = &queue.is.bench;
    bench.apply(&queued("a"))?;
    queue.serves("a", 3).await?;
    bench.apply(&queued("b"))?;
    let why = "insufficient unused quota for nvidia.com/gpu";
    queue.waits("b", why).await?;
    queue.show("a serves, b waits as a whole")?;

    // Quota that is left goes to one more replica by itself.
    let two = r#"{"spec":{"pools":{"decode":{"replicas":2}}}}"#;
    bench.kubectl(&format!("patch pdd a --type=merge -p {two}"))?;
    queue.serves("a", 4).await?;
    queue.show("a has grown into what was left")?;

    // Each replica of the pair in turn, so that in the end none is left of those that the quota was given to.
    for role in ["decode", "prefill", "decode"] {
        queue.loses_one_of_the_pair("a", role).await?;
    }
    queue.waits("b", why).await?;

    bench.kubectl("delete pdd a --wait=false")?;
    queue.serves("b", 3).await?;
    queue.show("a went, b serves")?;

    // What takes quota back deletes the pods; they wait for it again.
    let stop = |policy: &str| {
        let patch = format!(r#"{{"spec":{{"stopPolicy":"{policy}"}}}}"#);
        bench.kubectl(&format!(
            "patch clusterqueue {QUEUE} --type=merge -p {patch}"
        ))
    };
    stop("HoldAndDrain")?;
    queue.waits("b", "inactive").await?;
    queue
        .becomes(|| {
            let pods = queue.is.workers("b")?;
            let group = |pod: &Value| pod["metadata"]["labels"]["pdserve.io/gang"].clone();
            let is_one = pods.iter().all(|pod| group(pod) == group(&pods[0]));
            ensure!(pods.len() == 3 && is_one, "b is in several groups");
            Ok(())
        })
        .await?;
    stop("None")?;
    queue.serves("b", 3).await?;
    queue.show("b lost its quota, and has it again")?;
    let kinds = "pdd,pods,workloads.kueue.x-k8s.io";
    queue.is.goes("b", kinds).await?;
    queue.is.bench.stop()
}
