//! The status of a deployment and of its pools, as functions of what was observed.

mod conditions;
mod inputs;

pub(crate) use conditions::{
    CANNOT_APPLY, FETCHING_MODEL, INVALID_SPEC, OUT_OF_STATE_SLOTS, PEER_KEYS_ROTATED,
    ROTATION_HELD, STATE_SLOTS_FREE, WEIGHTS_REFUSED, WEIGHTS_SERVED, condition,
};
pub(crate) use inputs::{Guard, KeyRotation, StatusInputs};

use crate::controller::build::component::Component;
use crate::controller::plan::{Desired, Observed, ObservedPod};
use conditions::{conditions, refused_conditions, true_since};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use pd_crds::status::{ModelStatus, PdDeploymentStatus, PoolStatus, PoolsStatus, RevisionStatus};
use pd_crds::{PdDeployment, PdPoolStatus};

/// The status of a deployment that could be built.
pub(crate) fn status(
    deployment: &PdDeployment,
    desired: &[Desired],
    observed: &Observed,
    inputs: &StatusInputs,
    now: Timestamp,
) -> PdDeploymentStatus {
    let before = deployment.status.clone().unwrap_or_default();
    let pool = |component| pool_status(component, desired, &observed.pods);
    let pools = PoolsStatus {
        prefill: pool(Component::Prefill),
        decode: pool(Component::Decode),
    };
    let replaced = |pool: &PoolStatus| pool.updated == pool.current;
    let revision = RevisionStatus {
        current: if before.revision.current.is_empty()
            || (replaced(&pools.prefill) && replaced(&pools.decode))
        {
            inputs.revision.clone()
        } else {
            before.revision.current.clone()
        },
        update: inputs.revision.clone(),
    };
    // While a revision is replaced, the newer one is reported.
    let is_wanted = |name: &str| {
        let mut pods = observed.pods.iter().filter(|pod| pod.name == name);
        pods.any(|pod| {
            let mut pools = desired.iter();
            pools.any(|pool| pool.component == pod.component && pool.revision == pod.revision)
        })
    };
    let kv_compat = observed
        .routers
        .iter()
        .flat_map(|router| router.workers.iter().flatten())
        .filter(|worker| is_wanted(&worker.spec.id))
        .find_map(|worker| worker.kv_compat.clone());
    let conditions = conditions(deployment, &pools, inputs, now);
    PdDeploymentStatus {
        observed_generation: deployment.metadata.generation,
        summary: summary(&conditions, inputs.model.as_ref()),
        model: inputs.model.clone(),
        conditions,
        endpoint: Some(inputs.endpoint.clone()),
        kv_compat: kv_compat.or(before.kv_compat),
        revision,
        decisions: inputs.decisions.clone(),
        pools,
    }
}

/// The status of a deployment that cannot be carried out for a reason: what runs goes on running.
pub(crate) fn refused(
    deployment: &PdDeployment,
    reason: &'static str,
    message: &str,
    now: Timestamp,
) -> PdDeploymentStatus {
    let before = deployment.status.clone().unwrap_or_default();
    let conditions = refused_conditions(deployment, reason, message, now);
    PdDeploymentStatus {
        observed_generation: deployment.metadata.generation,
        summary: summary(&conditions, None),
        conditions,
        ..before
    }
}

/// The status of a deployment whose first model is fetched.
pub(crate) fn fetching(
    deployment: &PdDeployment,
    model: ModelStatus,
    now: Timestamp,
) -> PdDeploymentStatus {
    let before = deployment.status.clone().unwrap_or_default();
    let conditions = refused_conditions(deployment, FETCHING_MODEL, &model.message, now);
    PdDeploymentStatus {
        observed_generation: deployment.metadata.generation,
        summary: summary(&conditions, Some(&model)),
        conditions,
        model: Some(model),
        ..before
    }
}

/// The reason of `Ready`, and how far a model is that is fetched.
fn summary(conditions: &[Condition], model: Option<&ModelStatus>) -> String {
    let mut conditions = conditions.iter();
    let ready = conditions.find(|condition| condition.type_ == "Ready");
    let reason = ready.map_or("", |ready| ready.reason.as_str());
    let fetched = model.filter(|model| !model.is_fetched());
    match fetched.map(|model| model.message.as_str()) {
        None | Some("") => reason.to_owned(),
        Some(message) if reason == FETCHING_MODEL => capitalized(message),
        Some(message) => format!("{reason}; {message}"),
    }
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

/// Whether a reason of `Ready` says that something is wrong, and not only on its way.
pub(crate) fn is_trouble(reason: &str) -> bool {
    matches!(reason, CANNOT_APPLY | INVALID_SPEC)
}

/// Whether a status says that a write failed.
pub(crate) fn says_write_failed(status: &PdDeploymentStatus) -> bool {
    let mut conditions = status.conditions.iter();
    conditions.any(|is| is.reason == CANNOT_APPLY)
}

/// Since when each of what is to go forward has been under way.
pub(crate) fn under_way_since(status: &PdDeploymentStatus) -> impl Iterator<Item = Timestamp> {
    let claims = ["Progressing", "Reconciling"].into_iter();
    claims.filter_map(|claim| true_since(status, claim))
}

/// The status of one pool's own object.
pub(crate) fn of_pool(
    status: &PoolStatus,
    selector: String,
    generation: Option<i64>,
) -> PdPoolStatus {
    PdPoolStatus {
        observed_generation: generation,
        replicas: status.current,
        ready: status.ready,
        routable: status.routable,
        draining: status.draining,
        selector,
    }
}

fn pool_status(component: Component, desired: &[Desired], pods: &[ObservedPod]) -> PoolStatus {
    let wanted = desired.iter().find(|pool| pool.component == component);
    let count = |holds: &dyn Fn(&ObservedPod) -> bool| {
        let pods = pods.iter().filter(|pod| pod.component == component);
        i32::try_from(pods.filter(|pod| holds(pod)).count()).unwrap_or(i32::MAX)
    };
    let stays = |pod: &ObservedPod| pod.leaving.is_none();
    let replicas = wanted.map_or(0, |pool| i32::try_from(pool.replicas).unwrap_or(i32::MAX));
    let routable = count(&ObservedPod::serves);
    PoolStatus {
        desired: replicas,
        current: count(&stays),
        ready: count(&|pod| stays(pod) && pod.ready),
        routable,
        draining: count(&|pod| pod.leaving.is_some()),
        updated: count(&|pod| {
            stays(pod) && wanted.is_some_and(|pool| pool.revision == pod.revision)
        }),
        summary: format!("{routable}/{replicas}"),
    }
}

#[cfg(test)]
mod tests;
