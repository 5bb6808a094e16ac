//! Hollow nodes: Kubernetes places pods on them, and no kubelet starts anything. Each pod "runs" as
//! an address of this machine's loopback at which we answer what the operator asks of agents and
//! routers, as if there were load. Thousands fit on a machine. The name is Kubemark's.

mod adopt;
mod agent;
mod pods;
mod server;
mod table;

use crate::binaries::tiny_model;
use crate::client::Client as HttpClient;
use crate::fleet::FleetSpec;
use agent::Template;
use anyhow::{Context, Result};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use pd_protocol::Role;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use table::Table;
use tokio::task::JoinSet;

pub use agent::Load;
pub use table::Ended;

/// A quarter of a lease, as kubelets do.
const LEASE_EVERY: Duration = Duration::from_secs(10);

const GONE_LIMIT: Duration = Duration::from_secs(10);

/// Nodes, and the pods on them; all gone when dropped, but for the objects.
pub struct HollowNodes {
    client: Client,
    table: Arc<Table>,
    _tasks: JoinSet<()>,
}

// === impl HollowNodes ===

impl HollowNodes {
    /// Adds nodes with so many GPUs each to a control plane, and serves the pods that come.
    ///
    /// # Errors
    /// When the apiserver refuses, or no agent starts that shows what agents say.
    pub async fn start(client: Client, gpus: &[u32]) -> Result<Self> {
        let table = Arc::new(Table::new(template().await?));
        let mut tasks = JoinSet::new();
        allow_many_files()?;
        for (nr, gpus) in gpus.iter().enumerate() {
            let name = format!("hollow-{nr}");
            add_node(&client, &name, *gpus).await?;
            tasks.spawn(renew_lease(client.clone(), name.clone()));
            tasks.spawn(pods::follow(client.clone(), name, Arc::clone(&table)));
        }
        Ok(Self {
            client,
            table,
            _tasks: tasks,
        })
    }

    /// Serves every node that bears a label, from when it appears until it is gone: those that an autoscaler of nodes makes.
    ///
    /// # Errors
    /// When no agent starts that shows what agents say.
    pub async fn adopt(client: Client, label: &str) -> Result<Self> {
        let table = Arc::new(Table::new(template().await?));
        let mut tasks = JoinSet::new();
        allow_many_files()?;
        let label = label.to_owned();
        tasks.spawn(adopt::follow(client.clone(), label, Arc::clone(&table)));
        Ok(Self {
            client,
            table,
            _tasks: tasks,
        })
    }

    /// Each pod that was deleted, and whether it was drained by then.
    pub fn ended(&self) -> Vec<Ended> {
        self.table.ended()
    }

    /// What users send to every deployment from now on.
    pub fn set_load(&self, load: Load) {
        self.table.set_load(load);
    }

    /// What a pod's `/metrics` is from now on: a text, or again what is so.
    pub fn set_said(&self, pod: &str, said: Option<&str>) {
        self.table.set_said(pod, said);
    }

    /// How often `/metrics` was asked for.
    pub fn scrapes(&self) -> u64 {
        self.table.scrapes.load(Ordering::Relaxed)
    }

    /// # Errors
    /// When the apiserver refuses.
    pub async fn set_gpus(&self, nr: usize, gpus: u32) -> Result<()> {
        set_gpus(&self.client, &format!("hollow-{nr}"), gpus).await
    }
}

/// Every pod listens.
fn allow_many_files() -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, most).context("allow as many open files as this process may have")
}

/// What a real agent says of itself.
async fn template() -> Result<Template> {
    let spec = FleetSpec::new(tiny_model("tiny-llama"));
    let mut agent = spec
        .start_worker(Role::Unified, crate::address::fresh())
        .await?;
    let url = format!("{}/metrics", agent.url());
    let text = HttpClient::new().get(&url).await?.text();
    // Its ports are needed.
    agent.process.signal(Signal::KILL)?;
    agent.process.wait_exit(GONE_LIMIT).await?;
    Ok(Template::new(&text))
}

async fn add_node(client: &Client, name: &str, gpus: u32) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let labels = json!({"kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64"});
    let node = json!({"metadata": {"name": name, "labels": labels}});
    let node = serde_json::from_value(node)?;
    nodes
        .create(&PostParams::default(), &node)
        .await
        .with_context(|| format!("create node {name}"))?;
    set_gpus(client, name, gpus).await
}

async fn set_gpus(client: &Client, name: &str, gpus: u32) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let room = json!({
        "cpu": "10k", "memory": "10Ti", "pods": "10k", "nvidia.com/gpu": gpus.to_string(),
    });
    let now = Timestamp::now();
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "Hollow",
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    });
    let status = json!({"capacity": room, "allocatable": room, "conditions": [ready]});
    let patch = Patch::Strategic(json!({"status": status}));
    nodes
        .patch_status(name, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

/// A node whose lease is old is taken for lost.
async fn renew_lease(client: Client, name: String) {
    let leases: Api<Lease> = Api::namespaced(client, "kube-node-lease");
    loop {
        let patch = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
            "spec": {
                "holderIdentity": name, "leaseDurationSeconds": 40,
                "renewTime": format!("{:.6}", Timestamp::now()),
            },
        });
        let params = PatchParams::apply("hollow").force();
        // One missed renewal costs nothing.
        if let Err(error) = leases.patch(&name, &params, &Patch::Apply(&patch)).await {
            eprintln!("the lease of {name}: {error}");
        }
        tokio::time::sleep(LEASE_EVERY).await;
    }
}
