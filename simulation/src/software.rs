//! What runs on each host of a deployment, started as often as the host boots, and what the judge sees of it.

use crate::client::{self, Answers, Ask};
use crate::engine;
use crate::faults::Ills;
use crate::host::Software;
use crate::network::{HostId, Network};
use crate::plan::Plan;
use crate::stranger;
use crate::worker::{self, Kv};
use clap::Parser;
use futures_util::FutureExt;
use futures_util::future::ready;
use parking_lot::Mutex;
use pd_engine::engine::EngineHandle;
use pd_protocol::Role;
use pd_router::{Args, Router, Server, Stopped};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

/// The router as a host's software leaves it for the judge; `None` while it has not run.
pub(crate) type Shown = Arc<Mutex<Option<Arc<Router>>>>;

/// Of each worker's last start.
#[derive(Clone, Default)]
pub(crate) struct Workers {
    pub(crate) engines: Arc<Mutex<BTreeMap<usize, EngineHandle>>>,
    pub(crate) boot_ids: Arc<Mutex<BTreeMap<usize, String>>>,
    pub(crate) ills: Ills,
    kv: Kv,
}

/// Where a worker runs, and as what.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) role: Role,
    host: HostId,
    ills: Ills,
}

/// A router that ends looks at this port in the kernel's own tables, where no one listens at it.
const API_PORT: u16 = 1;
/// What a client allows beyond the router's own limit: its way there and back, with losses.
pub(crate) const CLIENT_SLACK: Duration = Duration::from_secs(15);

/// The address of the `nr`th host.
pub(crate) fn address(nr: usize) -> IpAddr {
    let last = u8::try_from(nr + 1).expect("a simulation has few hosts");
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))
}

/// The host that a worker's URL names.
pub(crate) fn nr_of(url: &str) -> usize {
    let mut nrs = 0..usize::from(u8::MAX - 1);
    let is_named = |nr: &usize| url.contains(&format!("/{}:", address(*nr)));
    nrs.find(is_named).expect("a host of the simulation")
}

// === impl Place ===

impl Place {
    pub(crate) fn ip(&self) -> IpAddr {
        address(self.host.0)
    }

    /// Whether it answers all requests with an error.
    pub(crate) fn is_sick(&self) -> bool {
        self.ills.sick.has(self.host)
    }

    /// Whether it gets no memory to start with.
    pub(crate) fn is_starved(&self) -> bool {
        self.ills.starved.has(self.host)
    }
}

pub(crate) fn of_worker(plan: &Plan, role: Role, nr: usize, shown: &Workers) -> Software {
    let shown = shown.clone();
    let place = Place {
        role,
        host: HostId(nr),
        ills: shown.ills.clone(),
    };
    let Some(shape) = plan.engines else {
        let stand_in = plan.stand_in;
        return Box::new(move |ends| {
            if place.is_starved() {
                return ready(()).boxed();
            }
            let boot_id = format!("{:016x}", rand::random::<u64>());
            shown.boot_ids.lock().insert(nr, boot_id.clone());
            let kv = Arc::clone(&shown.kv);
            worker::run(place.clone(), boot_id, kv, stand_in, ends).boxed()
        });
    };
    Box::new(move |ends| {
        let shown = shown.clone();
        let show = move |engine: EngineHandle| {
            let boot_id = engine.info().boot_id.to_string();
            shown.boot_ids.lock().insert(nr, boot_id);
            shown.engines.lock().insert(nr, engine);
        };
        engine::run(place.clone(), shape, show, ends).boxed()
    })
}

pub(crate) fn of_router(plan: &Plan, shown: &Shown) -> Software {
    let mut flags = vec!["pd-router".to_owned(), "--pd-disaggregation".to_owned()];
    flags.extend(plan.router_flags.iter().cloned());
    let port = API_PORT.to_string();
    flags.extend(["--port".to_owned(), port]);
    let url = |nr: usize| format!("http://{}:{}", address(nr), worker::PORT);
    for nr in 0..plan.prefills {
        flags.extend(["--prefill".to_owned(), url(nr), "8998".to_owned()]);
    }
    for nr in plan.prefills..plan.prefills + plan.decodes {
        flags.extend(["--decode".to_owned(), url(nr)]);
    }
    let shown = Arc::clone(shown);
    Box::new(move |ends| {
        let (flags, shown) = (flags.clone(), Arc::clone(&shown));
        async move {
            let args = Args::try_parse_from(flags).expect("the flags are the router's");
            let config = args.into_config().expect("the flags agree");
            let server = Server::bind(config).await.expect("the ports are free");
            *shown.lock() = Some(Arc::clone(&server.router));
            let ended = server.run(ends.cancelled_owned()).await;
            assert_eq!(ended.ok(), Some(Stopped::Drained), "the router drains");
        }
        .boxed()
    })
}

pub(crate) fn of_client(plan: &Plan, answers: &Answers) -> Software {
    let router = (address(plan.prefills + plan.decodes), API_PORT);
    let asks: Vec<Ask> = plan.asks.clone();
    let limit = plan.request_timeout + CLIENT_SLACK;
    let answers = Arc::clone(answers);
    Box::new(move |_| client::run(router, asks.clone(), limit, Arc::clone(&answers)).boxed())
}

pub(crate) fn of_stranger(plan: &Plan, network: &Arc<Network>) -> Software {
    let (seed, tries) = (plan.seed, plan.strange);
    let workers = plan.prefills + plan.decodes;
    // Where places are few, a stranger may take them.
    let hosts = if plan.connections_max > tries {
        workers + 1
    } else {
        workers
    };
    let hosts: Vec<_> = (0..hosts).map(|nr| (HostId(nr), address(nr))).collect();
    let network = Arc::clone(network);
    Box::new(move |_| stranger::run(Arc::clone(&network), hosts.clone(), seed, tries).boxed())
}

pub(crate) fn of_late_client(plan: &Plan, answers: &Answers) -> Software {
    let router = (address(plan.prefills + plan.decodes), API_PORT);
    let asks = plan.late_asks.clone();
    let limit = plan.request_timeout + CLIENT_SLACK;
    let answers = Arc::clone(answers);
    Box::new(move |_| client::run_next(router, asks.clone(), limit, Arc::clone(&answers)).boxed())
}
