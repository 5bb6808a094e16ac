//! Which pod answers at which address, and what each is asked to bear.

use super::agent::{Agent, Load, Template};
use k8s_openapi::api::core::v1::Pod as KubePod;
use kube::ResourceExt;
use parking_lot::Mutex;
use pd_protocol::Role;
use pd_protocol::labels;
use pd_protocol::workers::{
    DispatchStatus, DrainState, DrainStatus, WorkerList, WorkerSpec, WorkerState, WorkerStatus,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv4Addr;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

/// Before the first address; processes of other proofs lie below.
const BASE: Ipv4Addr = Ipv4Addr::new(127, 240, 0, 0);

pub(super) struct Table {
    template: Template,
    known: Mutex<Known>,
    ended: Mutex<Vec<Ended>>,
    pub(super) scrapes: AtomicU64,
}

/// A pod that was deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    pub pod: String,
    /// The operator asked it to drain before it was deleted.
    pub drained: bool,
}

#[derive(Default)]
struct Known {
    load: Load,
    pods: HashMap<Ipv4Addr, Pod>,
    /// By UID.
    addresses: HashMap<String, Ipv4Addr>,
    /// By deployment.
    together: BTreeMap<String, BTreeSet<Ipv4Addr>>,
    given: u32,
}

struct Pod {
    name: String,
    deployment: String,
    what: What,
    leaves: bool,
    drains: bool,
    /// In place of what is so.
    said: Option<String>,
    lived_until: Instant,
}

enum What {
    Router,
    /// A further node of a worker.
    Follower,
    Worker(Role, Agent),
}

// === impl Table ===

impl Table {
    pub(super) fn new(template: Template) -> Self {
        Self {
            template,
            known: Mutex::default(),
            ended: Mutex::default(),
            scrapes: AtomicU64::new(0),
        }
    }

    pub(super) fn set_load(&self, load: Load) {
        let mut known = self.known.lock();
        let addresses: Vec<Ipv4Addr> = known.pods.keys().copied().collect();
        for address in addresses {
            known.live(address);
        }
        known.load = load;
    }

    pub(super) fn set_said(&self, pod: &str, said: Option<&str>) {
        let mut known = self.known.lock();
        for known in known.pods.values_mut().filter(|known| known.name == pod) {
            known.said = said.map(str::to_owned);
        }
    }

    /// A pod of ours is there or has changed; gives its address.
    pub(super) fn note(&self, pod: &KubePod) -> Option<Ipv4Addr> {
        let (uid, label) = (pod.uid()?, |name| pod.labels().get(name).cloned());
        let deployment = label(labels::DEPLOYMENT)?;
        let what = match label(labels::ROLE)?.as_str() {
            _ if labels::is_follower(pod.labels()) => What::Follower,
            "prefill" => What::Worker(Role::Prefill, Agent::new(Role::Prefill)),
            "decode" => What::Worker(Role::Decode, Agent::new(Role::Decode)),
            _ => What::Router,
        };
        let leaves = pod.annotations().contains_key(labels::LEAVING_SINCE);
        let mut known = self.known.lock();
        let known = &mut *known;
        let address = *known.addresses.entry(uid).or_insert_with(|| {
            known.given += 1;
            Ipv4Addr::from_bits(BASE.to_bits() + known.given)
        });
        let together = known.together.entry(deployment.clone()).or_default();
        together.insert(address);
        let pod = known.pods.entry(address).or_insert_with(|| Pod {
            name: pod.name_any(),
            deployment,
            what,
            leaves,
            drains: false,
            said: None,
            lived_until: Instant::now(),
        });
        pod.leaves = leaves;
        Some(address)
    }

    pub(super) fn forget(&self, uid: &str) {
        let mut known = self.known.lock();
        let Some(address) = known.addresses.remove(uid) else {
            return;
        };
        let Some(pod) = known.pods.remove(&address) else {
            return;
        };
        self.ended.lock().push(Ended {
            pod: pod.name.clone(),
            drained: pod.drains,
        });
        if let Some(together) = known.together.get_mut(&pod.deployment) {
            together.remove(&address);
        }
    }

    pub(super) fn ended(&self) -> Vec<Ended> {
        self.ended.lock().clone()
    }

    /// What a pod says of its load; nothing where none is.
    pub(super) fn metrics(&self, address: Ipv4Addr) -> Option<String> {
        let mut known = self.known.lock();
        known.live(address);
        let pod = known.pods.get(&address)?;
        if let Some(said) = &pod.said {
            return Some(said.clone());
        }
        Some(match &pod.what {
            What::Router => "pd_router_queue_waiting 0\n".to_owned(),
            What::Follower => return None,
            What::Worker(_, agent) => agent.text(&self.template),
        })
    }

    /// The workers that a router knows.
    pub(super) fn workers(&self, address: Ipv4Addr) -> Option<WorkerList> {
        let known = self.known.lock();
        let pod = known.pods.get(&address)?;
        let together = known.together[&pod.deployment].iter();
        let workers = together.filter_map(|address| known.pods[address].as_worker(*address));
        Some(WorkerList {
            workers: workers.collect(),
            dispatch: DispatchStatus::default(),
        })
    }

    /// How far a worker's drain is; `begin` asks for it.
    pub(super) fn drain(&self, address: Ipv4Addr, begin: bool) -> Option<DrainStatus> {
        let mut known = self.known.lock();
        let pod = known.pods.get_mut(&address)?;
        pod.drains |= begin;
        let state = if pod.drains {
            DrainState::Drained
        } else {
            DrainState::Serving
        };
        Some(DrainStatus {
            state,
            in_flight: 0,
        })
    }
}

// === impl Known ===

impl Known {
    /// Brings an agent up to now.
    fn live(&mut self, address: Ipv4Addr) {
        let Some(pod) = self.pods.get(&address) else {
            return;
        };
        let (load, of) = (self.load, |role| self.serving(&pod.deployment, role));
        let share = match &pod.what {
            What::Worker(Role::Decode, _) => {
                load.through(of(Role::Prefill)).shared_by(of(Role::Decode))
            }
            What::Worker(role, _) => load.shared_by(of(*role)),
            What::Router | What::Follower => return,
        };
        let share = if pod.leaves {
            Load { rate: 0.0, ..share }
        } else {
            share
        };
        let now = Instant::now();
        if let Some(pod) = self.pods.get_mut(&address)
            && let What::Worker(_, agent) = &mut pod.what
        {
            agent.live(share, (now - pod.lived_until).as_secs_f64());
            pod.lived_until = now;
        }
    }

    fn serving(&self, deployment: &str, role: Role) -> usize {
        let together = self.together.get(deployment).into_iter().flatten();
        let pods = together.filter_map(|address| self.pods.get(address));
        let serves =
            |pod: &&Pod| matches!(pod.what, What::Worker(is, _) if is == role) && !pod.leaves;
        pods.filter(serves).count()
    }
}

// === impl Pod ===

impl Pod {
    fn as_worker(&self, address: Ipv4Addr) -> Option<WorkerStatus> {
        let What::Worker(role, _) = self.what else {
            return None;
        };
        Some(WorkerStatus {
            spec: WorkerSpec {
                id: self.name.clone(),
                role,
                url: format!("http://{address}:{}", pd_protocol::ports::HTTP),
                bootstrap_host: None,
                bootstrap_port: None,
                given_kv_compat: None,
            },
            state: if self.leaves {
                WorkerState::Cordoned
            } else {
                WorkerState::Serving
            },
            circuit_open: false,
            in_flight: 0,
            kv_compat: Some("hollow".to_owned()),
            boot_id: None,
            weights: None,
            reason: None,
        })
    }
}
