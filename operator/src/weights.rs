//! Weights that running workers change, on a cluster as on this machine: asks routers and workers, and takes the steps that
//! [`decide`] names.

mod decide;

pub(crate) use decide::{Progress, Reported, Seen, SeenRouter, SeenWorker, Step, decide};

use crate::http_client::{CallError, HttpClient};
use futures::future::join_all;
use http::Method;
use pd_protocol::Role;
use pd_protocol::weights::{
    Checkpoint, STATUS_PATH, UPDATE_PATH, WeightsStatus, WeightsUpdate, WeightsUpdated,
};
use pd_protocol::workers::{DispatchStatus, PauseRequest, WorkerList};
use std::collections::BTreeSet;
use std::time::Duration;

/// Longest wait for an admin API: a frozen process must not hold up the others.
const LIMIT: Duration = Duration::from_secs(2);
/// How long a router holds requests back if this operator is gone; it renews that every second or so.
const LEASE_SECS: u32 = 30;

/// A router or worker with an admin API.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) name: String,
    /// Without a path.
    pub(crate) admin_url: String,
}

/// The processes of a deployment that serve, and stay.
#[derive(Clone, Debug, Default)]
pub(crate) struct Processes {
    pub(crate) routers: Vec<Process>,
    pub(crate) workers: Vec<(Role, Process)>,
}

/// How far it is, after the steps that were due.
pub(crate) struct Outcome {
    pub(crate) progress: Progress,
    /// The first step that failed; the next reconcile takes it again.
    pub(crate) failure: Option<CallError>,
}

/// Brings all workers one step closer to the wanted checkpoint.
pub(crate) async fn follow(
    client: &HttpClient,
    processes: &Processes,
    wanted: &Checkpoint,
    drain_limit: Duration,
) -> Outcome {
    let seen = look(client, processes, wanted).await;
    let (steps, progress) = decide(wanted, &seen, drain_limit);
    let taken = steps
        .iter()
        .map(|step| take(client, processes, wanted, step));
    let taken = join_all(taken).await;
    Outcome {
        progress,
        failure: taken.into_iter().find_map(Result::err),
    }
}

/// Asks the routers, and the workers that serve other weights by what routers know.
async fn look(client: &HttpClient, processes: &Processes, wanted: &Checkpoint) -> Seen {
    let lists = processes.routers.iter().map(async |router| {
        let url = format!("{}/workers", router.admin_url);
        let list = client.call::<WorkerList>(Method::GET, &url, None, LIMIT);
        (router.name.clone(), list.await.ok())
    });
    let lists = join_all(lists).await;
    let is_known = |worker: &&(Role, Process)| {
        let said = |list: &WorkerList| {
            let mut of_list = list.workers.iter();
            of_list.any(|it| it.spec.id == worker.1.name && it.weights.as_ref() == Some(wanted))
        };
        // What routers know is as old as their last probe: not while weights change.
        let is_known = |list: &WorkerList| list.dispatch.paused_ms.is_none() && said(list);
        let mut lists = lists.iter();
        !processes.routers.is_empty() && lists.all(|(_, list)| list.as_ref().is_some_and(is_known))
    };
    let known: BTreeSet<&str> = processes
        .workers
        .iter()
        .filter(is_known)
        .map(|(_, worker)| worker.name.as_str())
        .collect();
    let workers = processes.workers.iter().map(async |(role, worker)| {
        let reported = if known.contains(worker.name.as_str()) {
            Reported::Serves
        } else {
            let url = format!("{}{STATUS_PATH}", worker.admin_url);
            match client
                .call::<WeightsStatus>(Method::GET, &url, None, LIMIT)
                .await
            {
                Ok(status) if status.serving == *wanted && !status.phase.replaces() => {
                    Reported::Serves
                }
                Ok(status) => Reported::Other(status),
                Err(why) => Reported::Silent(why.to_string()),
            }
        };
        SeenWorker {
            name: worker.name.clone(),
            role: *role,
            reported,
        }
    });
    Seen {
        workers: join_all(workers).await,
        routers: lists
            .into_iter()
            .map(|(name, list)| SeenRouter {
                name,
                dispatch: list.map(|list| list.dispatch),
            })
            .collect(),
    }
}

async fn take(
    client: &HttpClient,
    processes: &Processes,
    wanted: &Checkpoint,
    step: &Step,
) -> Result<(), CallError> {
    tracing::debug!(?step, "a step towards new weights");
    let of_worker = |name: &str| processes.workers.iter().find(|(_, it)| it.name == name);
    let of_router = |name: &str| processes.routers.iter().find(|it| it.name == name);
    let (process, path, body) = match step {
        Step::Prepare(worker) => {
            let update = WeightsUpdate {
                prepare_only: Some(true),
                ..update(wanted)
            };
            let worker = of_worker(worker).map(|(_, worker)| worker);
            (worker, UPDATE_PATH, json(&update))
        }
        Step::Switch { worker, abort } => {
            let update = WeightsUpdate {
                abort_all_requests: abort.then_some(true),
                ..update(wanted)
            };
            let worker = of_worker(worker).map(|(_, worker)| worker);
            (worker, UPDATE_PATH, json(&update))
        }
        Step::Pause(router) => {
            let pause = PauseRequest {
                lease_secs: LEASE_SECS,
            };
            (of_router(router), "/pause", json(&pause))
        }
        Step::Resume(router) => (of_router(router), "/resume", Vec::new()),
    };
    // Steps are about processes that were seen.
    let Some(process) = process else {
        return Ok(());
    };
    let url = format!("{}{path}", process.admin_url);
    let body = Some(body).filter(|body| !body.is_empty());
    match step {
        Step::Prepare(_) | Step::Switch { .. } => client
            .call::<WeightsUpdated>(Method::POST, &url, body, LIMIT)
            .await
            .map(drop),
        Step::Pause(_) | Step::Resume(_) => client
            .call::<DispatchStatus>(Method::POST, &url, body, LIMIT)
            .await
            .map(drop),
    }
}

/// The worker answers at once, and says later how it went.
fn update(wanted: &Checkpoint) -> WeightsUpdate {
    WeightsUpdate {
        model_path: wanted.model_path.clone(),
        weight_version: Some(wanted.weight_version.clone()),
        is_async: Some(true),
        ..WeightsUpdate::default()
    }
}

fn json(body: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(body).expect("it serializes to JSON")
}
