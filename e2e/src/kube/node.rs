//! One node: containerd, kubelet and kube-proxy in a machine of their own, joined to the cluster's
//! network.

mod config;

pub(crate) use config::DOMAIN;

use crate::certs::Subject;
use crate::kube::cgroups;
use crate::kube::control_plane::{Plan, flags};
use crate::kube::daemon::{Daemon, NamespaceScope, Site};
use crate::kube::host;
use crate::kube::machine::{self, Machine};
use crate::kube::network::{Network, NodeAddress, PODS, SERVICES};
use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// containerd answers in under a second on an idle machine.
const READY_LIMIT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

pub struct Node {
    pub name: String,
    pub address: NodeAddress,
    site: Site,
    dir: PathBuf,
    machine: Machine,
    containerd: Daemon,
    kubelet: Option<Daemon>,
    proxy: Option<Daemon>,
    policies: Option<Daemon>,
}

// === impl Node ===

impl Node {
    /// A machine with containerd, before the apiserver is needed.
    ///
    /// # Errors
    /// When one does not start.
    pub async fn start(site: &Site, network: &Network, nr: u8, nodes: u8) -> Result<Self> {
        let address = NodeAddress { nr };
        let name = name(nr);
        let dir = site.dir.join(&name);
        fs::create_dir_all(&dir)?;
        cgroups::make(&site.id, &name)?;
        let machine = Machine::start(site, &name, &dir).await?;
        let all: Vec<NodeAddress> = (1..=nodes).map(|nr| NodeAddress { nr }).collect();
        network.join(address, machine.place(), &all)?;

        let plugins = host::cni_folder().context("the CNI plugins were found before")?;
        config::write_cni(&dir, address)?;
        config::write_registry(&dir)?;
        let toml = config::write_containerd(&dir, plugins)?;
        let command = flags("containerd", &[("config", &toml)]);
        let log = format!("{name}/containerd");
        let containerd = Daemon::spawn(site, machine.place(), &log, command)?;
        Ok(Self {
            name,
            address,
            site: site.clone(),
            dir,
            machine,
            containerd,
            kubelet: None,
            proxy: None,
            policies: None,
        })
    }

    /// kubelet and kube-proxy, once containerd answers.
    ///
    /// # Errors
    /// When one cannot be started.
    pub fn start_agents(&mut self, plan: &Plan) -> Result<()> {
        let kubelet = self.kubelet_command(plan)?;
        let proxy = self.proxy_command(plan)?;
        self.kubelet = Some(self.spawn("kubelet", kubelet)?);
        self.proxy = Some(self.spawn("kube-proxy", proxy)?);
        Ok(())
    }

    /// kube-router, `program`, for network policies alone.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_policies(&mut self, program: &Path, kubeconfig: &Path) -> Result<()> {
        let command = flags(
            &program.display().to_string(),
            &[
                ("kubeconfig", &kubeconfig.display().to_string()),
                ("hostname-override", &self.name),
                ("run-firewall", "true"),
                ("run-router", "false"),
                ("run-service-proxy", "false"),
                ("service-cluster-ip-range", SERVICES),
            ],
        );
        self.policies = Some(self.spawn("kube-router", command)?);
        Ok(())
    }

    /// # Errors
    /// When containerd does not answer in time.
    pub async fn wait_containerd(&mut self) -> Result<()> {
        let deadline = Instant::now() + READY_LIMIT;
        while let Err(e) = ctr(&self.site, self.place(), &["version"], Stdio::null()) {
            self.containerd.check_alive()?;
            ensure!(
                Instant::now() < deadline,
                "containerd of {} does not answer: {e}",
                self.name
            );
            sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Makes the image in `archive` (docker or OCI, tar) known to the node.
    ///
    /// # Errors
    /// When containerd refuses it.
    pub fn import(&self, archive: &Path) -> Result<()> {
        import(&self.site, &self.name, archive)
    }

    /// Leaves its pods running without a kubelet to report them.
    ///
    /// # Errors
    /// When it runs no more.
    pub fn kill_kubelet(&mut self) -> Result<()> {
        self.kubelet
            .as_mut()
            .context("the node has no kubelet yet")?
            .kill()
    }

    /// # Errors
    /// When it still runs.
    pub fn start_kubelet(&mut self) -> Result<()> {
        self.kubelet
            .as_mut()
            .context("the node has no kubelet yet")?
            .start_again()
    }

    /// Ends every process of the node at once, its containers too. It does not come back.
    ///
    /// # Errors
    /// When it is off already.
    pub fn power_off(&mut self) -> Result<()> {
        self.machine.power_off()?;
        self.daemons().for_each(Daemon::reap);
        Ok(())
    }

    pub fn place(&self) -> NamespaceScope {
        self.machine.place()
    }

    pub fn daemons(&mut self) -> impl Iterator<Item = &mut Daemon> {
        let agents = self.kubelet.iter_mut().chain(&mut self.proxy);
        let agents = agents.chain(&mut self.policies);
        [self.machine.holder(), &mut self.containerd]
            .into_iter()
            .chain(agents)
    }

    fn spawn(&self, program: &str, command: Vec<String>) -> Result<Daemon> {
        let log = format!("{}/{program}", self.name);
        Daemon::spawn(&self.site, self.place(), &log, command)
    }

    fn kubelet_command(&self, plan: &Plan) -> Result<Vec<String>> {
        let ip = self.address.ip().to_string();
        let subject = Subject {
            user: &format!("system:node:{}", self.name),
            group: Some("system:nodes"),
        };
        let kubeconfig =
            plan.kubeconfig(&format!("{}.kubelet", self.name), subject, &plan.url())?;
        let file = format!("{}.serving", self.name);
        let serving = plan
            .authority
            .server(&file, &self.name, &[&ip, &self.name])?;
        let config = config::Kubelet {
            dir: &self.dir,
            cgroup_root: &cgroups::node_root(&self.site.id, &self.name),
            ip: &ip,
            ca: &plan.authority.identity().cert,
            serving: &serving,
            dns: plan.dns,
        };
        let path = |name: &str| self.dir.join(name).display().to_string();
        Ok(flags(
            &self.site.tool("kubelet"),
            &[
                ("config", &config.write()?),
                ("kubeconfig", &kubeconfig.display().to_string()),
                ("hostname-override", &self.name),
                ("node-ip", &ip),
                ("root-dir", &path("kubelet")),
                ("cert-dir", &path("certs")),
            ],
        ))
    }

    fn proxy_command(&self, plan: &Plan) -> Result<Vec<String>> {
        let subject = Subject {
            user: "system:kube-proxy",
            group: None,
        };
        let kubeconfig = plan.kubeconfig(&format!("{}.proxy", self.name), subject, &plan.url())?;
        Ok(proxy_flags(&self.site, &kubeconfig, &self.name))
    }
}

/// Makes the image in `archive` known to node `name`; the cluster may be another process's.
///
/// # Errors
/// When containerd refuses it.
pub fn import(site: &Site, name: &str, archive: &Path) -> Result<()> {
    let tar = File::open(archive).with_context(|| format!("open {}", archive.display()))?;
    let place = machine::place_of(&site.dir.join(name))?;
    ctr(site, place, &["images", "import", "-"], tar.into())
        .with_context(|| format!("import {} into {name}", archive.display()))
}

/// What node `nr` is called.
pub fn name(nr: u8) -> String {
    format!("node-{nr}")
}

fn ctr(site: &Site, place: NamespaceScope, words: &[&str], stdin: Stdio) -> Result<()> {
    let mut line = vec![
        "ctr",
        "--address",
        config::CONTAINERD_SOCKET,
        "--namespace",
        "k8s.io",
    ];
    line.extend(words);
    site.run_with_stdin(place, &line, stdin)?;
    Ok(())
}

/// kube-proxy, on a node or beside the control plane.
pub(super) fn proxy_flags(site: &Site, kubeconfig: &Path, name: &str) -> Vec<String> {
    flags(
        &site.tool("kube-proxy"),
        &[
            ("kubeconfig", &kubeconfig.display().to_string()),
            ("hostname-override", name),
            ("proxy-mode", "iptables"),
            ("cluster-cidr", PODS),
            // These are settings of the whole machine.
            ("conntrack-max-per-core", "0"),
            ("conntrack-tcp-timeout-established", "0s"),
            ("conntrack-tcp-timeout-close-wait", "0s"),
        ],
    )
}
