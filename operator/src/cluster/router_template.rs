//! The pod template of routers that stands, and what it was made for.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use kube::ResourceExt;
use pd_crds::json_order::sorted;
use pd_protocol::labels;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Hexadecimal digits of a template's digest.
pub(super) const DIGITS: usize = 10;

/// What was found of a deployment's routers when this operator first made their template.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    /// Digest of the template that this operator makes.
    pub(super) made: String,
    /// The one that stands in its place.
    pub(super) kept: Option<Arc<Kept>>,
}

#[derive(Debug)]
pub(super) struct Kept {
    pub(super) template: PodTemplateSpec,
    /// Digest that its operator noted; those of before noted none.
    pub(super) made: Option<String>,
}

// === impl Kept ===

impl Kept {
    /// The template of `live`, unless this operator made it or it was made for something else.
    pub(super) fn of(live: Deployment, made: &Deployment, digest: &str) -> Option<Self> {
        let noted = live.annotations().get(labels::TEMPLATE).cloned();
        let template = live.spec?.template;
        let is_alike = made_for(&template) == made_for(template_of(made)?);
        (is_alike && noted.as_deref() != Some(digest)).then_some(Self {
            template,
            made: noted,
        })
    }
}

/// What of the spec, and of the Secrets, a template was made for.
#[derive(PartialEq, Eq)]
pub(super) struct MadeFor<'a> {
    revision: Option<&'a str>,
    /// Since when the admin token holds.
    token_since: Option<&'a str>,
    /// How long routers may drain, which no revision has.
    grace_seconds: Option<i64>,
    /// Whether routers hold a key of the workers.
    has_worker_key: bool,
}

pub(super) fn made_for(template: &PodTemplateSpec) -> MadeFor<'_> {
    let metadata = template.metadata.as_ref();
    let labels = metadata.and_then(|it| it.labels.as_ref());
    let annotations = metadata.and_then(|it| it.annotations.as_ref());
    let pod = template.spec.as_ref();
    let containers = pod.iter().flat_map(|it| &it.containers);
    let mut env = containers.flat_map(|it| it.env.iter().flatten());
    MadeFor {
        revision: labels.and_then(|it| it.get(labels::REVISION).map(String::as_str)),
        token_since: annotations.and_then(|it| it.get(labels::TOKEN_SINCE).map(String::as_str)),
        grace_seconds: pod.and_then(|it| it.termination_grace_period_seconds),
        has_worker_key: env.any(|it| it.name == labels::ENV_WORKER_API_KEY),
    }
}

pub(super) fn template_of(deployment: &Deployment) -> Option<&PodTemplateSpec> {
    Some(&deployment.spec.as_ref()?.template)
}

/// # Panics
/// Never: pod templates serialize to JSON.
pub(super) fn digest(template: Option<&PodTemplateSpec>) -> String {
    let json = serde_json::to_value(template).expect("pod templates serialize to JSON");
    let digest = Sha256::digest(sorted(json).to_string());
    let mut hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    hex.truncate(DIGITS);
    hex
}
