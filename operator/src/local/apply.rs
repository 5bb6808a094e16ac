//! Carries out what was planned: starts and ends processes, talks to admin APIs.

use super::address::{self, Subnet, SubnetFull};
use super::client::{CallError, Client};
use super::console::Console;
use super::launch::{self, Launch, Surroundings};
use super::observe::ADMIN_LIMIT;
use super::plan::Action;
use super::process::{Phase, Process, spawn_process};
use crate::controller::build::Resources;
use crate::controller::build::component::Component;
use crate::controller::build::pod::{PORT_ADMIN, PORT_BOOTSTRAP, PORT_HTTP};
use crate::controller::build::pool::Slot;
use http::Method;
use k8s_openapi::api::core::v1::Pod;
use pd_crds::field::FieldErrors;
use pd_protocol::workers::{DrainStatus, WorkerSpec, WorkerStatus};
use pd_protocol::{labels, ports};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// A pod on this machine.
pub(crate) struct Entry {
    pub(crate) component: Component,
    pub(crate) slot: Slot,
    pub(crate) revision: String,
    pub(crate) address: IpAddr,
    pub(crate) url: String,
    pub(crate) admin_url: String,
    pub(crate) bootstrap_port: Option<u16>,
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

/// Why a step failed; the next pass plans it again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApplyError {
    #[error(transparent)]
    Address(#[from] SubnetFull),
    #[error("{address} is taken; stop what listens there, or choose another with --listen")]
    ListenTaken { address: SocketAddr },
    #[error("{pod}: {source}")]
    Launch { pod: String, source: FieldErrors },
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("{0} is gone")]
    Gone(String),
}

/// All pods of one deployment on this machine.
pub(crate) struct Fleet {
    pub(crate) entries: BTreeMap<String, Entry>,
    pub(crate) client: Client,
    pub(crate) console: Console,
    pub(crate) wake: Arc<Notify>,
    pub(crate) drain_limit: Duration,
    /// Address of the first router.
    pub(crate) listen: IpAddr,
    subnet: Subnet,
    programs: PathBuf,
    secrets: BTreeMap<(String, String), String>,
    incarnations: BTreeMap<(Component, u32), u32>,
}

/// What a fleet is made from.
pub(crate) struct FleetConfig {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) listen: IpAddr,
    pub(crate) programs: PathBuf,
    pub(crate) admin_token: String,
    /// Name and key of the Secret that holds the token on a cluster.
    pub(crate) admin_secret: (String, String),
    pub(crate) console: Console,
    pub(crate) wake: Arc<Notify>,
}

// === impl Fleet ===

impl Fleet {
    pub(crate) fn new(config: FleetConfig) -> Self {
        let FleetConfig {
            namespace,
            name,
            listen,
            programs,
            admin_token,
            admin_secret,
            console,
            wake,
        } = config;
        Self {
            entries: BTreeMap::new(),
            client: Client::new(admin_token.clone()),
            console,
            wake,
            drain_limit: Duration::ZERO,
            listen,
            subnet: Subnet::of(&namespace, &name),
            programs,
            secrets: BTreeMap::from([(admin_secret, admin_token)]),
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

    /// Ends every process at once.
    pub(crate) fn kill(&self) {
        self.entries.values().for_each(|entry| entry.process.kill());
    }

    /// Carries out one step.
    pub(crate) async fn apply(
        &mut self,
        action: &Action,
        resources: &Resources,
    ) -> Result<(), ApplyError> {
        tracing::debug!(?action, "applies");
        match action {
            Action::Create { component, ordinal } => self.create(*component, *ordinal, resources),
            Action::Leave { pod } => {
                let deadline = Instant::now() + self.drain_limit;
                let entry = self.entry_mut(pod)?;
                entry.process.finish();
                entry.leaving = Some(Departure {
                    deadline,
                    drain_asked: false,
                    drained: false,
                    terminated: false,
                });
                self.console.progress(&format!("{pod}: leaves"));
                Ok(())
            }
            Action::Register { router, pod } => self.register(router, pod).await,
            Action::Cordon { router, pod } => {
                let path = format!("/workers/{pod}/cordon");
                self.tell_router(router, Method::POST, &path, None).await
            }
            Action::Deregister { router, worker } => {
                let path = format!("/workers/{worker}");
                self.tell_router(router, Method::DELETE, &path, None).await
            }
            Action::Drain { pod } => self.drain(pod).await,
            Action::Terminate { pod } => {
                let entry = self.entry_mut(pod)?;
                entry.process.terminate();
                entry
                    .leaving
                    .as_mut()
                    .into_iter()
                    .for_each(|leaving| leaving.terminated = true);
                Ok(())
            }
        }
    }

    fn create(
        &mut self,
        component: Component,
        ordinal: u32,
        resources: &Resources,
    ) -> Result<(), ApplyError> {
        let incarnation = self.incarnations.entry((component, ordinal)).or_default();
        *incarnation += 1;
        let slot = Slot {
            ordinal,
            incarnation: *incarnation,
        };
        let pod = pod_of(component, slot, resources);
        let name = pod.metadata.name.clone().unwrap_or_default();
        let address = self.take_address(component, slot, &pod)?;
        let around = Surroundings {
            address,
            programs: self.programs.clone(),
            secrets: self.secrets.clone(),
        };
        let launch = launch::launch(&pod, &around).map_err(|source| ApplyError::Launch {
            pod: name.clone(),
            source,
        })?;
        let entry = self.start(component, slot, &pod, address, launch);
        self.console
            .progress(&format!("{name}: starts on {address}"));
        self.entries.insert(name, entry);
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
        let url = |port: u16| {
            format!(
                "http://{}",
                SocketAddr::new(launch::dialable(address), port)
            )
        };
        let revision = pod
            .metadata
            .labels
            .as_ref()
            .and_then(|all| all.get(labels::REVISION));
        Entry {
            component,
            slot,
            revision: revision.cloned().unwrap_or_default(),
            address,
            url: url(port(PORT_HTTP, ports::HTTP)),
            admin_url: url(port(PORT_ADMIN, ports::ADMIN)),
            bootstrap_port: launch.ports.get(PORT_BOOTSTRAP).copied(),
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

    /// The first router stands for the Service and listens where clients are told to go.
    fn take_address(
        &mut self,
        component: Component,
        slot: Slot,
        pod: &Pod,
    ) -> Result<IpAddr, ApplyError> {
        let ports = pod_ports(pod);
        if component == Component::Router && slot.ordinal == 0 {
            let taken = ports
                .iter()
                .map(|port| SocketAddr::new(self.listen, *port))
                .find(|address| !address::is_free(*address));
            return match taken {
                Some(address) => Err(ApplyError::ListenTaken { address }),
                None => Ok(self.listen),
            };
        }
        let in_use: Vec<IpAddr> = self.entries.values().map(|entry| entry.address).collect();
        Ok(self.subnet.take(&ports, &in_use, address::is_free)?)
    }

    async fn register(&self, router: &str, pod: &str) -> Result<(), ApplyError> {
        let entry = self.entry(pod)?;
        let role = entry
            .component
            .worker_role()
            .ok_or_else(|| ApplyError::Gone(pod.to_owned()))?;
        let spec = WorkerSpec {
            id: pod.to_owned(),
            role,
            url: entry.url.clone(),
            bootstrap_host: None,
            bootstrap_port: entry.bootstrap_port,
        };
        let body = serde_json::to_vec(&spec).expect("a WorkerSpec serializes to JSON");
        self.tell_router(router, Method::POST, "/workers", Some(body))
            .await
    }

    async fn tell_router(
        &self,
        router: &str,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<(), ApplyError> {
        let url = format!("{}{path}", self.entry(router)?.admin_url);
        self.client
            .call::<WorkerStatus>(method, &url, body, ADMIN_LIMIT)
            .await?;
        Ok(())
    }

    /// A worker whose admin API is broken counts as asked: it is ended next, and drains upon that.
    async fn drain(&mut self, pod: &str) -> Result<(), ApplyError> {
        let url = format!("{}/drain", self.entry(pod)?.admin_url);
        let answer = self
            .client
            .call::<DrainStatus>(Method::POST, &url, None, ADMIN_LIMIT)
            .await;
        let entry = self.entry_mut(pod)?;
        entry
            .leaving
            .as_mut()
            .into_iter()
            .for_each(|leaving| leaving.drain_asked = true);
        answer?;
        Ok(())
    }

    fn entry(&self, pod: &str) -> Result<&Entry, ApplyError> {
        self.entries
            .get(pod)
            .ok_or_else(|| ApplyError::Gone(pod.to_owned()))
    }

    fn entry_mut(&mut self, pod: &str) -> Result<&mut Entry, ApplyError> {
        self.entries
            .get_mut(pod)
            .ok_or_else(|| ApplyError::Gone(pod.to_owned()))
    }
}

/// The pod that the operator (of a worker) or the Deployment controller (of a router) would make.
fn pod_of(component: Component, slot: Slot, resources: &Resources) -> Pod {
    match component {
        Component::Prefill => resources.prefill.pod(slot),
        Component::Decode => resources.decode.pod(slot),
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
