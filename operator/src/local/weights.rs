//! Workers on this machine that change their weights while they run.

use super::console::Console;
use super::fleet::{Entry, Fleet};
use super::process::Phase;
use crate::controller::build::component::Component;
use crate::controller::build::model;
use crate::weights::{Outcome, Process, Processes, Progress, follow};
use pd_crds::PdDeploymentSpec;

/// What was said last of the weights that the spec names; nothing where it names none.
#[derive(Debug, Default)]
pub(crate) struct Weights {
    progress: Option<Progress>,
}

// === impl Weights ===

impl Weights {
    /// Brings the workers one step closer to the weights of the spec.
    pub(crate) async fn follow(&mut self, fleet: &Fleet, spec: &PdDeploymentSpec) {
        let wanted = model::checkpoint(spec).filter(|_| !spec.suspend);
        let Some(wanted) = wanted else {
            self.progress = None;
            return;
        };
        let processes = processes(fleet);
        let limit = fleet.drain_limit;
        let Outcome { progress, failure } = follow(&fleet.client, &processes, &wanted, limit).await;
        if let Some(error) = failure {
            tracing::warn!(%error, "a step towards new weights failed");
        }
        self.say(progress, fleet.console);
    }

    /// Whether all workers serve what the spec names.
    pub(crate) fn is_settled(&self) -> bool {
        self.progress
            .as_ref()
            .is_none_or(|progress| matches!(progress, Progress::Served(_)))
    }

    fn say(&mut self, progress: Progress, console: Console) {
        // At the first start there is nothing to say.
        let is_news = self
            .progress
            .as_ref()
            .is_some_and(|before| *before != progress);
        if is_news {
            let (Progress::Served(said) | Progress::UnderWay(said) | Progress::Refused(said)) =
                &progress;
            console.progress(said);
        }
        self.progress = Some(progress);
    }
}

/// Routers that have started, and workers that serve and stay, and were made for weights that are changed.
fn processes(fleet: &Fleet) -> Processes {
    let mut processes = Processes::default();
    let serves =
        |entry: &&Entry| entry.leaving.is_none() && entry.process.state().phase == Phase::Ready;
    for (name, entry) in &fleet.entries {
        let Some(admin_url) = Some(entry)
            .filter(serves)
            .and_then(|it| it.admin_url.clone())
        else {
            continue;
        };
        let process = Process {
            name: name.clone(),
            admin_url,
        };
        match (entry.component, entry.component.worker_role()) {
            (Component::Router, _) => processes.routers.push(process),
            (Component::Prefill | Component::Decode, role) => {
                let role = role.filter(|_| entry.takes_weights);
                processes.workers.extend(role.map(|role| (role, process)));
            }
        }
    }
    processes
}
