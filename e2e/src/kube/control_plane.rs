//! etcd, kube-apiserver, kube-controller-manager and kube-scheduler: their flags, and when they are
//! ready. They run on this machine's loopback, or in the network that the nodes are joined to.

use crate::certs::{Authority, Identity, Subject};
use crate::kube::audit;
use crate::kube::daemon::{Daemon, NamespaceScope, Site};
use crate::kube::kubeconfig::{self, Credential};
use crate::kube::network;
use crate::kube::node;
use anyhow::{Context, Result};
use rustix::process::Pid;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};

/// The apiserver's own Service.
const APISERVER_SERVICE: &str = "10.96.0.1";
/// Requests per second of the controllers, lifted: a test cluster's apiserver has no other clients.
const CONTROLLER_QPS: &str = "2000";

/// What lets Kubernetes place gangs, and the API by which it learns of them.
const GANG_GATES: &str = "GenericWorkload=true,GangScheduling=true";
const GANG_API: &str = "scheduling.k8s.io/v1alpha2=true";

pub struct ControlPlane {
    pub plan: Plan,
    pub etcd: Daemon,
    pub apiserver: Daemon,
    pub controllers: Vec<Daemon>,
}

/// What is decided before anything starts.
pub struct Plan {
    pub site: Site,
    pub place: NamespaceScope,
    pub authority: Authority,
    /// Where the apiserver listens.
    pub address: SocketAddrV4,
    /// Whether pods reach the apiserver through its Service.
    pub serves_pods: bool,
    /// Whether the scheduler places gangs.
    pub gangs: bool,
    /// Where pods resolve names.
    pub dns: Option<Ipv4Addr>,
}

// === impl ControlPlane ===

impl ControlPlane {
    /// The controller manager and the scheduler, once the apiserver answers.
    ///
    /// # Errors
    /// When one cannot be started.
    pub fn start_controllers(&mut self) -> Result<()> {
        let Plan { site, place, .. } = &self.plan;
        let manager = self.plan.controller_manager_command()?;
        let scheduler = self.plan.scheduler_command()?;
        self.controllers = vec![
            Daemon::spawn(site, *place, "kube-controller-manager", manager)?,
            Daemon::spawn(site, *place, "kube-scheduler", scheduler)?,
        ];
        Ok(())
    }

    pub fn daemons(&mut self) -> impl Iterator<Item = &mut Daemon> {
        let controllers = self.controllers.iter_mut();
        [&mut self.etcd, &mut self.apiserver]
            .into_iter()
            .chain(controllers)
    }

    /// Its programs, by name, and their processes.
    ///
    /// # Errors
    /// When one has ended.
    pub fn programs(&self) -> Result<Vec<(&str, Pid)>> {
        let daemons = [&self.etcd, &self.apiserver].into_iter();
        let all = daemons.chain(&self.controllers);
        all.map(|daemon| Ok((daemon.name(), daemon.pid()?)))
            .collect()
    }
}

// === impl Plan ===

impl Plan {
    /// etcd and the apiserver, which waits for etcd.
    ///
    /// # Errors
    /// When one cannot be started.
    pub fn start(self) -> Result<ControlPlane> {
        let etcd = Daemon::spawn(&self.site, self.place, "etcd", self.etcd_command())?;
        let command = self.apiserver_command()?;
        let apiserver = Daemon::spawn(&self.site, self.place, "kube-apiserver", command)?;
        Ok(ControlPlane {
            plan: self,
            etcd,
            apiserver,
            controllers: Vec::new(),
        })
    }

    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// A kubeconfig for `subject`, who asks `server`.
    ///
    /// # Errors
    /// When the files cannot be written.
    pub fn kubeconfig(&self, file: &str, subject: Subject<'_>, server: &str) -> Result<PathBuf> {
        let identity = self.authority.client(file, subject)?;
        let path = self.site.dir.join(format!("{file}.kubeconfig"));
        let ca = self.authority.identity().cert;
        kubeconfig::write(&path, server, &ca, Credential::Certificate(&identity))?;
        Ok(path)
    }

    /// A kubeconfig of an administrator for what runs beside the apiserver.
    ///
    /// # Errors
    /// When the files cannot be written.
    pub fn own_kubeconfig(&self) -> Result<PathBuf> {
        let admin = Subject {
            user: "beside",
            group: Some("system:masters"),
        };
        self.kubeconfig("beside", admin, &self.url())
    }

    fn path(&self, name: &str) -> String {
        self.site.dir.join(name).display().to_string()
    }

    /// Unix sockets: no port to find, and no other user can connect.
    fn etcd_command(&self) -> Vec<String> {
        let (client, peer) = (self.path("etcd.sock"), self.path("peer.sock"));
        flags(
            &self.site.tool("etcd"),
            &[
                ("name", "etcd"),
                ("data-dir", &self.path("etcd")),
                ("listen-client-urls", &format!("unix://{client}")),
                ("listen-peer-urls", &format!("unix://{peer}")),
                // These must name a host; no client uses them.
                ("advertise-client-urls", "http://localhost:0"),
                ("initial-advertise-peer-urls", "http://localhost:0"),
                ("initial-cluster", "etcd=http://localhost:0"),
                // A test cluster does not outlive its machine.
                ("unsafe-no-fsync", "true"),
                ("log-level", "warn"),
            ],
        )
    }

    fn apiserver_command(&self) -> Result<Vec<String>> {
        let ip = self.address.ip().to_string();
        let names = [
            "localhost",
            "127.0.0.1",
            &ip,
            APISERVER_SERVICE,
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
        ];
        let serving = self
            .authority
            .server("apiserver", "kube-apiserver", &names)?;
        let kubelet_client = self.authority.client(
            "apiserver-kubelet",
            Subject {
                user: "kube-apiserver-kubelet-client",
                group: Some("system:masters"),
            },
        )?;
        let ca = self.authority.identity();
        let accounts = self.authority.service_accounts()?;
        let policy = self.path("audit-policy.json");
        fs::write(&policy, audit::POLICY).context("write the audit policy")?;
        let reconciler = if self.serves_pods { "lease" } else { "none" };
        let own = flags(
            &self.site.tool("kube-apiserver"),
            &[
                (
                    "etcd-servers",
                    &format!("unix://{}", self.path("etcd.sock")),
                ),
                ("bind-address", &ip),
                ("advertise-address", &ip),
                ("secure-port", &self.address.port().to_string()),
                // The port stays reserved until the apiserver has it.
                ("permit-port-sharing", "true"),
                ("endpoint-reconciler-type", reconciler),
                ("service-cluster-ip-range", network::SERVICES),
                ("authorization-mode", "Node,RBAC"),
                ("enable-admission-plugins", "NodeRestriction"),
                ("allow-privileged", "true"),
                ("cert-dir", &self.path("certs")),
                ("client-ca-file", &text(&ca.cert)),
                ("tls-cert-file", &text(&serving.cert)),
                ("tls-private-key-file", &text(&serving.key)),
                ("kubelet-certificate-authority", &text(&ca.cert)),
                ("kubelet-client-certificate", &text(&kubelet_client.cert)),
                ("kubelet-client-key", &text(&kubelet_client.key)),
                // Or logs and exec resolve the node's name.
                ("kubelet-preferred-address-types", "InternalIP"),
                ("service-account-issuer", "https://kubernetes.default.svc"),
                ("service-account-key-file", &text(&accounts.cert)),
                ("service-account-signing-key-file", &text(&accounts.key)),
                ("audit-policy-file", &policy),
                ("audit-log-path", &self.path("audit.log")),
                // A write is in the log before it is answered.
                ("audit-log-mode", "blocking"),
            ],
        );
        Ok(self.with_gates(own, &[("runtime-config", GANG_API)]))
    }

    /// The flags of a program, and those that let it know of gangs.
    fn with_gates(&self, mut words: Vec<String>, more: &[(&str, &str)]) -> Vec<String> {
        if self.gangs {
            let gates = [("feature-gates", GANG_GATES)];
            let all = gates.iter().chain(more);
            words.extend(all.map(|(name, value)| format!("--{name}={value}")));
        }
        words
    }

    fn controller_manager_command(&self) -> Result<Vec<String>> {
        let config = self.component("kube-controller-manager")?;
        let Identity { cert, key } = self.authority.identity();
        let own = flags(
            &self.site.tool("kube-controller-manager"),
            &[
                ("kubeconfig", &config),
                ("leader-elect", "false"),
                ("secure-port", "0"),
                ("use-service-account-credentials", "true"),
                (
                    "service-account-private-key-file",
                    &self.path("certs/service-accounts.key"),
                ),
                ("root-ca-file", &text(&cert)),
                ("cluster-signing-cert-file", &text(&cert)),
                ("cluster-signing-key-file", &text(&key)),
                ("kube-api-qps", CONTROLLER_QPS),
                ("kube-api-burst", CONTROLLER_QPS),
                // Four missed reports, as kubelet sends them here; the default takes 50 s to see a
                // node lost.
                ("node-monitor-grace-period", "16s"),
                ("node-monitor-period", "1s"),
            ],
        );
        Ok(self.with_gates(own, &[]))
    }

    fn scheduler_command(&self) -> Result<Vec<String>> {
        let config = self.component("kube-scheduler")?;
        let own = flags(
            &self.site.tool("kube-scheduler"),
            &[
                ("kubeconfig", &config),
                ("leader-elect", "false"),
                ("secure-port", "0"),
                ("kube-api-qps", CONTROLLER_QPS),
                ("kube-api-burst", CONTROLLER_QPS),
            ],
        );
        Ok(self.with_gates(own, &[]))
    }

    /// kube-proxy beside the apiserver, which calls webhooks by their Services. It waits for a Node of
    /// its own before it does anything, so it takes the first one's name.
    ///
    /// # Errors
    /// When its kubeconfig cannot be written.
    pub fn proxy_command(&self) -> Result<Vec<String>> {
        let config = self.component("kube-proxy")?;
        Ok(node::proxy_flags(
            &self.site,
            Path::new(&config),
            &node::name(1),
        ))
    }

    /// The kubeconfig of a component, whose user is `system:NAME`.
    fn component(&self, name: &str) -> Result<String> {
        let subject = Subject {
            user: &format!("system:{name}"),
            group: None,
        };
        Ok(text(&self.kubeconfig(name, subject, &self.url())?))
    }
}

/// `program --name=value …`
pub(super) fn flags(program: &str, pairs: &[(&str, &str)]) -> Vec<String> {
    let mut words = vec![program.to_owned()];
    words.extend(
        pairs
            .iter()
            .map(|(name, value)| format!("--{name}={value}")),
    );
    words
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
