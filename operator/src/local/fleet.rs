//! The pods of one deployment on this machine: who they are, and how one is started.

use super::address::{self, Subnet};
use super::apply::ApplyError;
use super::console::Console;
use super::launch::{self, Launch, LaunchEnvironment};
use super::process::{Phase, Process, spawn_process};
use super::status::PodStatus;
use crate::controller::build::Resources;
use crate::controller::build::component::Component;
use crate::controller::build::pod::{PORT_ADMIN, PORT_BOOTSTRAP, PORT_HTTP};
use crate::controller::build::slot::Slot;
use crate::http_client::HttpClient;
use crate::random_text::random_text;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use pd_identity::Peers;
use pd_protocol::labels;
use pd_protocol::ports::{self, WorkerPorts};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Bytes of the workers' key before they are written in hexadecimal.
const WORKER_KEY_BYTES: usize = 24;

/// A pod on this machine.
pub(crate) struct Entry {
    pub(crate) component: Component,
    pub(crate) slot: Slot,
    pub(crate) revision: String,
    pub(crate) address: IpAddr,
    pub(crate) url: String,
    /// Of engines that have an admin API.
    pub(crate) admin_url: Option<String>,
    pub(crate) bootstrap_port: Option<u16>,
    pub(crate) given_kv_compat: Option<String>,
    /// It was made for weights that are changed.
    pub(crate) takes_weights: bool,
    pub(crate) process: Process,
    /// Latched: every router has sent requests to it.
    pub(crate) routable: bool,
    pub(crate) leaving: Option<Departure>,
}

/// A pod's way out.
pub(crate) struct Departure {
    pub(crate) deadline: Instant,
    pub(crate) drain_asked: bool,
    pub(crate) drained: bool,
    pub(crate) terminated: bool,
}

/// All pods of one deployment on this machine.
pub(crate) struct Fleet {
    pub(crate) entries: BTreeMap<String, Entry>,
    pub(crate) client: HttpClient,
    pub(crate) console: Console,
    pub(crate) wake: Arc<Notify>,
    pub(crate) drain_limit: Duration,
    /// Where the router serves clients.
    pub(crate) listen: SocketAddr,
    subnet: Subnet,
    programs: PathBuf,
    secrets: BTreeMap<(String, String), String>,
    incarnations: BTreeMap<(Component, u32), u32>,
}

/// What a fleet is made from.
pub(crate) struct FleetConfig {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) programs: PathBuf,
    pub(crate) admin_token: String,
    /// Name and key of the Secret that holds the token on a cluster.
    pub(crate) admin_secret: (String, String),
    /// Of the one that holds the workers' key there.
    pub(crate) worker_secret: (String, String),
    pub(crate) peers: Peers,
    pub(crate) console: Console,
    pub(crate) wake: Arc<Notify>,
}

// === impl Entry ===

impl Entry {
    fn status(&self, name: &str) -> PodStatus {
        let state = self.process.state();
        let word = match (&self.leaving, state.phase, self.routable) {
            (Some(leaving), _, _) if leaving.terminated => "Ending",
            (Some(_), _, _) => "Draining",
            (None, Phase::Starting, _) => "Starting",
            (None, Phase::Ready, true) => "Ready",
            (None, Phase::Ready, false) => "Unrouted",
            (None, Phase::Unready, _) => "Unready",
            (None, Phase::BackOff, _) => "BackOff",
            (None, Phase::Ended, _) => "Ended",
        };
        PodStatus {
            name: name.to_owned(),
            component: self.component.as_str().to_owned(),
            state: word.to_owned(),
            address: self.address.to_string(),
            url: self.url.clone(),
            admin_url: self.admin_url.clone(),
            pid: state.pid,
            restarts: state.restarts,
            revision: self.revision.clone(),
            reason: state.reason,
        }
    }
}

// === impl Fleet ===

impl Fleet {
    pub(crate) fn new(config: FleetConfig) -> Self {
        let FleetConfig {
            namespace,
            name,
            programs,
            admin_token,
            admin_secret,
            worker_secret,
            peers,
            console,
            wake,
        } = config;
        Self {
            entries: BTreeMap::new(),
            client: HttpClient::new(admin_token.clone(), peers),
            console,
            wake,
            drain_limit: Duration::ZERO,
            listen: SocketAddr::new(Ipv4Addr::LOCALHOST.into(), ports::HTTP),
            subnet: Subnet::of(&namespace, &name),
            programs,
            secrets: BTreeMap::from([
                (admin_secret, admin_token),
                (worker_secret, random_text::<WORKER_KEY_BYTES>()),
            ]),
            incarnations: BTreeMap::new(),
        }
    }

    pub(crate) fn leaving(&self) -> impl Iterator<Item = (&String, &Departure)> {
        self.entries
            .iter()
            .filter_map(|(name, entry)| Some((name, entry.leaving.as_ref()?)))
    }

    /// Drops pods whose process has ended for good.
    pub(crate) fn forget_ended(&mut self) {
        let console = self.console;
        self.entries.retain(|name, entry| {
            let ended = entry.process.state().phase == Phase::Ended;
            if ended {
                console.progress(&format!("{name}: gone"));
            }
            !ended
        });
    }

    pub(crate) fn statuses(&self) -> Vec<PodStatus> {
        let entries = self.entries.iter();
        entries.map(|(name, entry)| entry.status(name)).collect()
    }

    /// Ends every process at once.
    pub(crate) fn kill(&self) {
        self.entries.values().for_each(|entry| entry.process.kill());
    }

    /// Starts the next incarnation of an ordinal.
    pub(crate) fn create(
        &mut self,
        component: Component,
        ordinal: u32,
        resources: &Resources,
    ) -> Result<(), ApplyError> {
        let last = self.incarnations.get(&(component, ordinal));
        let incarnation = last.map_or(1, |last| last + 1);
        let slot = Slot {
            ordinal,
            incarnation,
        };
        let pod = pod_of(component, slot, resources);
        let name = pod.metadata.name.clone().unwrap_or_default();
        let address = self.take_address(component, &pod)?;
        let environment = LaunchEnvironment {
            address,
            programs: self.programs.clone(),
            secrets: self.secrets.clone(),
        };
        let launch = launch::launch(&pod, &environment).map_err(|source| ApplyError::Launch {
            pod: name.clone(),
            source,
        })?;
        let entry = self.start(component, slot, &pod, address, launch);
        self.console
            .progress(&format!("{name}: starts on {address}"));
        self.entries.insert(name, entry);
        self.incarnations.insert((component, ordinal), incarnation);
        Ok(())
    }

    fn start(
        &self,
        component: Component,
        slot: Slot,
        pod: &Pod,
        address: IpAddr,
        launch: Launch,
    ) -> Entry {
        let port = |name: &str, default: u16| launch.ports.get(name).copied().unwrap_or(default);
        let served = match component {
            Component::Router => self.listen,
            Component::Prefill | Component::Decode => {
                SocketAddr::new(address, port(PORT_HTTP, ports::HTTP))
            }
        };
        let admin = launch.ports.get(PORT_ADMIN);
        let admin = admin.map(|port| SocketAddr::new(address, *port));
        let url = |scheme: &str, at: SocketAddr| {
            let at = SocketAddr::new(launch::dialable(at.ip()), at.port());
            format!("{scheme}://{at}")
        };
        let scheme = pod.annotations().get(labels::SCHEME);
        let revision = pod.labels().get(labels::REVISION);
        Entry {
            component,
            slot,
            revision: revision.cloned().unwrap_or_default(),
            address,
            url: url(scheme.map_or("http", String::as_str), served),
            admin_url: admin.map(|admin| url("http", admin)),
            bootstrap_port: launch.ports.get(PORT_BOOTSTRAP).copied(),
            given_kv_compat: pod.annotations().get(labels::KV_COMPAT).cloned(),
            takes_weights: pod.annotations().contains_key(labels::TAKES_WEIGHTS),
            process: spawn_process(
                launch,
                self.client.clone(),
                self.console,
                Arc::clone(&self.wake),
            ),
            routable: false,
            leaving: None,
        }
    }

    /// Every pod has an address of its own; the router also listens where clients go.
    fn take_address(&mut self, component: Component, pod: &Pod) -> Result<IpAddr, ApplyError> {
        if component == Component::Router && !address::is_free(self.listen) {
            return Err(ApplyError::ListenTaken {
                address: self.listen,
            });
        }
        let in_use: Vec<IpAddr> = self.entries.values().map(|entry| entry.address).collect();
        Ok(self
            .subnet
            .take(&pod_ports(pod), &in_use, address::is_free)?)
    }

    pub(crate) fn entry(&self, pod: &str) -> Result<&Entry, ApplyError> {
        self.entries
            .get(pod)
            .ok_or_else(|| ApplyError::Gone(pod.to_owned()))
    }

    pub(crate) fn entry_mut(&mut self, pod: &str) -> Result<&mut Entry, ApplyError> {
        self.entries
            .get_mut(pod)
            .ok_or_else(|| ApplyError::Gone(pod.to_owned()))
    }
}

/// The pod that the operator (of a worker) or the Deployment controller (of a router) would make.
pub(crate) fn pod_of(component: Component, slot: Slot, resources: &Resources) -> Pod {
    match component {
        Component::Prefill => resources.prefill.pod(slot, WorkerPorts::WELL_KNOWN),
        Component::Decode => resources.decode.pod(slot, WorkerPorts::WELL_KNOWN),
        Component::Router => {
            let deployment = &resources.router;
            let template = deployment.spec.as_ref().map(|spec| spec.template.clone());
            let template = template.unwrap_or_default();
            let mut metadata = template.metadata.unwrap_or_default();
            let base = deployment.metadata.name.clone().unwrap_or_default();
            metadata.name = Some(slot.pod_name(&base));
            metadata.namespace = deployment.metadata.namespace.clone();
            Pod {
                metadata,
                spec: template.spec,
                status: None,
            }
        }
    }
}

fn pod_ports(pod: &Pod) -> Vec<u16> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers
        .flat_map(|container| container.ports.iter().flatten())
        .filter_map(|port| u16::try_from(port.container_port).ok())
        .collect()
}
