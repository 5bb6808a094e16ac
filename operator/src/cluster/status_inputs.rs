//! What a status is made of beside the pods.

use super::error::bounded;
use super::facts::PodFacts;
use super::snapshot::Snapshot;
use super::status::{Guard, StatusInputs};
use super::write::Outcome;
use crate::controller::build::component::Component;
use crate::controller::build::{Resources, revision, router, service};
use crate::controller::plan::Observed;
use kube::ResourceExt;
use pd_crds::PdDeploymentSpec;
use pd_crds::gpus::GpuDemand;
use pd_crds::status::Decision;
use pd_crds::stuck::{Cause, Stuck};

pub(super) fn status_inputs(
    snapshot: &Snapshot<'_>,
    observed: &Observed,
    outcome: &Outcome,
    decisions: Vec<Decision>,
) -> StatusInputs {
    let (deployment, spec) = (snapshot.deployment(), snapshot.spec());
    let pods = &snapshot.pods;
    let ready = snapshot.routers().filter(|facts| facts.ready()).count();
    StatusInputs {
        routers: (
            i32::try_from(ready).unwrap_or(i32::MAX),
            snapshot.routers_wanted(),
        ),
        endpoint: service::endpoint(deployment, snapshot.namespace),
        revision: revision::of_pools(spec),
        suspended: spec.suspend,
        refused: snapshot.effective.refused.clone(),
        model: snapshot.effective.model.clone(),
        drifted: image_drift(pods, &snapshot.effective.resources),
        replaces_routers: replaces_routers(snapshot.routers(), spec),
        trouble: outcome.failure.as_ref().map(bounded),
        stuck: stuck(snapshot),
        half_placed: None,
        unpaired: observed.unpaired.as_ref().map(bounded),
        decisions,
        lacks_slots: None,
        progressed: snapshot.progressed(),
        rotation: None,
        weights: None,
        guard: guard(snapshot),
    }
}

/// Workers that know their peers need none.
fn guard(snapshot: &Snapshot<'_>) -> Option<Guard> {
    let resources = &snapshot.effective.resources;
    let pools = [&resources.prefill, &resources.decode];
    let guard = if resources.policy.is_none() {
        Guard::Nothing
    } else if pools.iter().any(|pool| pool.shares_host_network()) {
        Guard::NothingOnNodes
    } else {
        Guard::OwnPolicy
    };
    (!snapshot.spec().authenticates_peers()).then_some(guard)
}

/// What keeps the first pod that does not start, and whether any cluster of this one's size could run it all.
fn stuck(snapshot: &Snapshot<'_>) -> Option<Stuck> {
    let mut stuck = snapshot.pods.iter().find_map(PodFacts::stuck)?;
    let demand = GpuDemand::of(&snapshot.spec().pools);
    let exceeds = snapshot.cluster_gpus.and_then(|has| demand.exceeding(has));
    if let Some(exceeds) = exceeds.filter(|_| stuck.cause == Cause::Unschedulable) {
        let name = snapshot.deployment().name_any();
        stuck.message = format!("{name} {exceeds}; {}", stuck.message);
    }
    Some(stuck)
}

fn replaces_routers<'a>(
    routers: impl Iterator<Item = &'a PodFacts>,
    spec: &PdDeploymentSpec,
) -> bool {
    let wanted = revision::revision(spec, Component::Router);
    let mut running = routers.filter(|facts| !facts.has_ended());
    running.any(|router| router.revision() != wanted)
}

/// Workers of the wanted revision that run another image than new ones would, in words.
fn image_drift(facts: &[PodFacts], resources: &Resources) -> Option<String> {
    let drifted = facts.iter().filter_map(|facts| {
        let (revision, wanted) = match facts.component {
            Component::Prefill => (
                resources.prefill.revision.as_str(),
                resources.prefill.image()?,
            ),
            Component::Decode => (
                resources.decode.revision.as_str(),
                resources.decode.image()?,
            ),
            Component::Router => router::revision_and_image(&resources.router)?,
        };
        let runs = facts.image()?;
        let stays = facts.revision() == revision && !facts.leaves() && !facts.has_ended();
        (runs != wanted && stays).then_some((runs, wanted))
    });
    let drifted: Vec<_> = drifted.collect();
    let (runs, wanted) = drifted.first()?;
    Some(format!(
        "{} pods of this revision run another image ({runs}) than new ones ({wanted})",
        drifted.len()
    ))
}
