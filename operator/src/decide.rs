//! What a reconcile does about pods and their number, on a cluster as on this machine: a function of what is wanted, what
//! was observed, and what the autoscaler remembers.

use crate::controller::autoscale::observations::Load;
use crate::controller::autoscale::per_role::PerRole;
use crate::controller::autoscale::{Decision, Observations, ScalingSpec};
use crate::controller::plan::{Action, Desired, Observed, ObservedPod, plan};
use crate::scaler::Scaler;
use pd_crds::PdDeploymentSpec;

#[derive(Debug)]
pub(crate) struct Decided {
    pub(crate) steps: Vec<Action>,
    /// Nothing where the load was not observed.
    pub(crate) scaling: Option<Decision>,
}

/// The next steps, and the sizes that the load asks for, which the next reconcile takes steps towards.
pub(crate) fn decide_steps(
    spec: &PdDeploymentSpec,
    desired: &[Desired],
    observed: &Observed,
    scaler: Option<&mut Scaler>,
) -> Decided {
    let load = observed.load.as_ref().zip(scaler);
    let scaling = load.map(|(load, scaler)| {
        let observations = observations(desired, observed, load);
        scaler.next_decision(&observations, &ScalingSpec::of(spec), load.at)
    });
    Decided {
        steps: plan(desired, observed),
        scaling,
    }
}

fn observations(desired: &[Desired], observed: &Observed, load: &Load) -> Observations {
    let mut targets = PerRole::default();
    for pool in desired {
        if let Some(role) = pool.component.pool_role() {
            targets[role] = pool.replicas;
        }
    }
    let is_old = |pod: &ObservedPod| {
        let of_pool = |pool: &&Desired| pool.component == pod.component;
        let wanted = desired.iter().find(of_pool);
        wanted.is_some_and(|pool| pool.revision != pod.revision)
    };
    Observations {
        targets,
        replicas: load.replicas.clone(),
        router_queue: load.router_queue,
        rollout_unready: observed.pods.iter().any(is_old),
        room_came: load.room_came,
    }
}
