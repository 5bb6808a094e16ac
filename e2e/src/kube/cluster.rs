//! A running cluster: started in one call, asked and broken by a test, gone when dropped.

mod access;
mod faults;
mod names;
mod policies;
mod ready;
mod seat;

use crate::certs::{Authority, Subject};
use crate::kube::control_plane::{ControlPlane, Plan};
use crate::kube::daemon::{Daemon, Site};
use crate::kube::forward::Forward;
use crate::kube::guard::Guard;
use crate::kube::host;
use crate::kube::image;
use crate::kube::ledger::{Entry, Ledger, Owner};
use crate::kube::machine;
use crate::kube::network::NODES_MAX;
use crate::kube::node::Node;
use crate::kube::teardown::sweep;
use crate::kube::tools::{self, Tools};
use anyhow::{Context, Result, bail, ensure};
use seat::Seat;
use std::fs;
use std::path::{Path, PathBuf};

/// Sockets lie in the folder, and their paths have at most 107 bytes.
const DIR_LEN_MAX: usize = 80;

/// What to start.
#[derive(Clone, Debug)]
pub struct Spec {
    /// 0 for a control plane alone.
    pub nodes: u8,
    /// `nvidia.com/gpu` that each node pretends to have.
    pub gpus_per_node: u32,
    /// Whether Kubernetes itself places gangs, which is behind feature gates.
    pub gangs: bool,
    /// Whether pods can resolve the names of Services and pods: by CoreDNS, which is built for it once.
    pub names: bool,
    /// Whether network policies are kept: by kube-router, which is built for it once.
    pub policies: bool,
    /// Where the cluster's files go: absent or empty. A fresh temporary folder unless given.
    pub dir: Option<PathBuf>,
    /// Tools are built, and running clusters recorded, below.
    pub cache: PathBuf,
}

pub struct Cluster {
    entry: Entry,
    cache: PathBuf,
    site: Site,
    /// Gone once the cluster is stopped or released.
    guard: Option<Guard>,
    seat: Seat,
    control_plane: ControlPlane,
    nodes: Vec<Node>,
    /// Services, seen from the control plane.
    proxy: Option<Daemon>,
    forwards: Vec<Forward>,
    /// What a test runs beside it.
    programs: Vec<Daemon>,
}

// === impl Spec ===

impl Spec {
    /// etcd, the apiserver and its controllers; pods stay Pending.
    pub fn control_plane() -> Self {
        Self {
            nodes: 0,
            gpus_per_node: 0,
            gangs: false,
            names: false,
            policies: false,
            dir: None,
            cache: tools::cache(),
        }
    }

    /// As [`Spec::control_plane`], and nodes on which pods run. Needs root.
    pub fn with_nodes(nodes: u8) -> Self {
        Self {
            nodes,
            ..Self::control_plane()
        }
    }

    /// # Errors
    /// When this machine lacks something; the error says how to get it.
    fn check(&self) -> Result<()> {
        ensure!(
            self.nodes <= NODES_MAX,
            "at most {NODES_MAX} nodes; {} asked for",
            self.nodes
        );
        if self.nodes > 0 {
            host::check_node()?;
        }
        Ok(())
    }

    fn make_dir(&self) -> Result<PathBuf> {
        let Some(dir) = &self.dir else {
            self.check_dir(&std::env::temp_dir().canonicalize()?)?;
            let made = tempfile::Builder::new().prefix("pdserve-kube-").tempdir();
            return Ok(made.context("make a temporary folder")?.keep());
        };
        let dir = std::path::absolute(dir)?;
        self.check_dir(&dir)?;
        let shown = dir.display();
        fs::create_dir_all(&dir).with_context(|| format!("make {shown}"))?;
        ensure!(
            dir.read_dir()?.next().is_none(),
            "{shown} is not empty; name another folder, it is removed with the cluster"
        );
        Ok(dir)
    }

    fn check_dir(&self, dir: &Path) -> Result<()> {
        let shown = dir.display();
        ensure!(
            dir.as_os_str().len() <= DIR_LEN_MAX,
            "{shown} is longer than {DIR_LEN_MAX} bytes, and sockets lie in it; name a shorter folder"
        );
        match machine::hides(dir).filter(|_| self.nodes > 0) {
            Some(hidden) => bail!(
                "{shown} lies in {hidden}, where nodes see their own files; name another folder"
            ),
            None => Ok(()),
        }
    }
}

// === impl Cluster ===

impl Cluster {
    /// Starts what `spec` says and waits until it can be used. The cluster ends with this process,
    /// unless [`Cluster::keep`] releases it.
    ///
    /// # Errors
    /// When something is missing here or does not start; what had started is gone then.
    pub async fn start(spec: Spec) -> Result<Self> {
        spec.check()?;
        let tools = Tools::ready(&spec.cache)?;
        let ledger = Ledger::new(&spec.cache);
        sweep(&ledger)
            .await
            .context("end what an earlier run left")?;
        let entry = Entry {
            id: format!("{:08x}", rand::random::<u32>()),
            dir: spec.make_dir()?,
            nodes: spec.nodes,
            owner: Owner::of(std::process::id()),
        };
        ledger.write(&entry)?;
        let guard = Guard::spawn(&spec.cache, &entry.id)?;
        let site = Site {
            id: entry.id.clone(),
            dir: entry.dir.clone(),
            tools: tools.folder().to_owned(),
        };
        let seat = Seat::take(&site, spec.nodes).await?;
        let plan = Plan {
            site: site.clone(),
            place: seat.place(),
            authority: Authority::new(&entry.dir.join("certs"))?,
            address: seat.address(),
            serves_pods: spec.nodes > 0,
            gangs: spec.gangs,
            dns: spec.names.then(|| *seat.address().ip()),
        };
        let admin = Subject {
            user: "admin",
            group: Some("system:masters"),
        };
        plan.kubeconfig("admin", admin, &seat.url())?;
        let mut cluster = Self {
            control_plane: plan.start()?,
            nodes: Vec::new(),
            proxy: None,
            forwards: Vec::new(),
            programs: Vec::new(),
            seat,
            entry,
            cache: spec.cache,
            site,
            guard: Some(guard),
        };
        cluster.start_machines(spec.nodes).await?;
        cluster.wait_apiserver().await?;
        cluster.control_plane.start_controllers()?;
        cluster.start_nodes().await?;
        cluster.wait_controllers().await?;
        if spec.names {
            cluster.start_names()?;
        }
        cluster.wait_nodes().await?;
        if spec.policies {
            cluster.start_policies()?;
        }
        cluster.set_gpus(spec.gpus_per_node).await?;
        Ok(cluster)
    }

    /// Lets the cluster outlive this process, until `pd-kube down`.
    ///
    /// # Errors
    /// When the guard is gone.
    pub fn keep(mut self) -> Result<Entry> {
        let mut entry = self.entry.clone();
        entry.owner = None;
        Ledger::new(&self.cache).write(&entry)?;
        self.guard
            .take()
            .context("a running cluster has a guard")?
            .keep()?;
        Ok(entry)
    }

    /// Ends the cluster and waits until nothing of it is left.
    ///
    /// # Errors
    /// When something stays.
    pub fn stop(mut self) -> Result<()> {
        let guard = self.guard.take().context("a running cluster has a guard")?;
        let ended = guard.end();
        self.daemons().for_each(Daemon::reap);
        ended
    }

    /// Machines with containerd; they start while the control plane does.
    async fn start_machines(&mut self, nodes: u8) -> Result<()> {
        let Some(network) = self.seat.network() else {
            return Ok(());
        };
        for nr in 1..=nodes {
            self.nodes
                .push(Node::start(&self.site, network, nr, nodes).await?);
        }
        Ok(())
    }

    /// kubelet and kube-proxy of each node.
    async fn start_nodes(&mut self) -> Result<()> {
        if self.nodes.is_empty() {
            return Ok(());
        }
        let pause = self.site.dir.join("pause");
        image::compile(image::PAUSE_SOURCE, &pause)?;
        let archive = pause.with_extension("tar");
        image::write(&archive, image::PAUSE, &pause)?;
        for node in &mut self.nodes {
            node.wait_containerd().await?;
            node.import(&archive)?;
            node.start_agents(&self.control_plane.plan)?;
        }
        let command = self.control_plane.plan.proxy_command()?;
        self.proxy = Some(Daemon::spawn(
            &self.site,
            self.seat.place(),
            "kube-proxy",
            command,
        )?);
        Ok(())
    }

    pub fn control_plane(&self) -> &ControlPlane {
        &self.control_plane
    }

    fn daemons(&mut self) -> impl Iterator<Item = &mut Daemon> {
        let nodes = self.nodes.iter_mut().flat_map(Node::daemons);
        let forwards = self.forwards.iter_mut().map(|forward| &mut forward.daemon);
        let seat = self.seat.daemons();
        let plane = self.control_plane.daemons().chain(&mut self.proxy);
        seat.chain(plane)
            .chain(nodes)
            .chain(forwards)
            .chain(&mut self.programs)
    }

    fn check_alive(&mut self) -> Result<()> {
        self.daemons().try_for_each(Daemon::check_alive)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(guard) = self.guard.take() {
            drop(guard);
            self.daemons().for_each(Daemon::reap);
        }
    }
}
