//! What a status is made of beside the pods.

use super::apply::Writer;
use super::error::ApplyError;
use super::facts::PodFacts;
use super::reconcile::bounded;
use super::status::StatusInputs;
use crate::controller::build::component::Component;
use crate::controller::build::{Resources, revision, router, service};
use crate::controller::plan::Observed;
use crate::controller::validate::Valid;
use pd_crds::PdDeploymentSpec;

impl Writer<'_> {
    pub(super) fn status_inputs(
        &self,
        valid: &Valid,
        resources: &Resources,
        facts: &[PodFacts],
        observed: &Observed,
        failure: Option<&ApplyError>,
    ) -> StatusInputs {
        let routers = facts
            .iter()
            .filter(|facts| facts.component == Component::Router && facts.ready());
        StatusInputs {
            routers: (
                i32::try_from(routers.count()).unwrap_or(i32::MAX),
                self.routers_wanted(),
            ),
            endpoint: service::endpoint(valid.deployment(), self.namespace),
            revision: revision::of_pools(&valid.deployment().spec),
            suspended: valid.deployment().spec.suspend,
            drifted: image_drift(facts, resources),
            refused: None,
            replaces_routers: self.replaces_routers(facts, &valid.deployment().spec),
            trouble: failure.map(bounded),
            decisions: Vec::new(),
            stuck: facts.iter().find_map(PodFacts::stuck),
            unpaired: observed.unpaired.as_ref().map(bounded),
            progressed: facts.iter().filter_map(PodFacts::last_change).max(),
        }
    }

    fn replaces_routers(&self, facts: &[PodFacts], spec: &PdDeploymentSpec) -> bool {
        let wanted = revision::revision(spec, Component::Router);
        let mut routers = facts
            .iter()
            .filter(|facts| facts.component == Component::Router && !facts.has_ended());
        routers.any(|router| router.revision() != wanted)
    }
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
