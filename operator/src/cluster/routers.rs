//! The routers' Deployment, as it is applied. Workers outlive a newer operator because pods are never
//! applied again; routers do because the pod template that stands is kept for as long as it was made
//! for this spec. Another spec, another admin token and `kubectl pd restart` replace them.

use super::apply::{ApplyError, Writer};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use kube::ResourceExt;
use pd_protocol::labels;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Hexadecimal digits of a template's digest.
const DIGITS: usize = 10;

/// What was found of a deployment's routers when this operator first made their template.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    /// Digest of the template that this operator makes.
    made: String,
    /// The one that stands in its place.
    kept: Option<Arc<Kept>>,
}

#[derive(Debug)]
struct Kept {
    template: PodTemplateSpec,
    /// Digest that its operator noted; those of before noted none.
    made: Option<String>,
}

// === impl Writer ===

impl Writer<'_> {
    /// `made`, with the pod template that stands where another operator made that for the same spec.
    pub(crate) async fn routers(&self, mut made: Deployment) -> Result<Deployment, ApplyError> {
        let digest = digest(template_of(&made));
        let kept = self.kept(&made, &digest).await?;
        let noted = match kept {
            Some(kept) => {
                let spec = made.spec.get_or_insert_default();
                spec.template = kept.template.clone();
                kept.made.clone()
            }
            None => Some(digest),
        };
        if let Some(noted) = noted {
            let annotations = made.annotations_mut();
            annotations.insert(labels::TEMPLATE.to_owned(), noted);
        }
        Ok(made)
    }

    /// Asks the apiserver once for each template that this operator makes; indexes hold none.
    async fn kept(&self, made: &Deployment, digest: &str) -> Result<Option<Arc<Kept>>, ApplyError> {
        let (uid, name) = (self.uid(), made.name_any());
        let memories = &self.context.memories;
        if self.context.deployments.find(&self.key(), &name).is_none() {
            memories.update(&uid, |memory| memory.template = None);
            return Ok(None);
        }
        let known = memories
            .read(&uid, |memory| memory.template.clone())
            .flatten();
        if let Some(known) = known.filter(|known| known.made == digest) {
            return Ok(known.kept);
        }
        let live = self.live::<Deployment>(&name).await?;
        let kept = live.and_then(|live| Kept::of(live, made, digest));
        let kept = kept.map(Arc::new);
        let template = Template {
            made: digest.to_owned(),
            kept: kept.clone(),
        };
        memories.update(&uid, |memory| memory.template = Some(template));
        Ok(kept)
    }
}

// === impl Kept ===

impl Kept {
    /// The template of `live`, unless this operator made it or it was made for something else.
    fn of(live: Deployment, made: &Deployment, digest: &str) -> Option<Self> {
        let noted = live.annotations().get(labels::TEMPLATE).cloned();
        let template = live.spec?.template;
        let is_alike = made_for(&template) == made_for(template_of(made)?);
        (is_alike && noted.as_deref() != Some(digest)).then_some(Self {
            template,
            made: noted,
        })
    }
}

/// What of the spec, and of the admin token, a template was made for: the revision, since when the
/// token holds, and how long routers may drain, which no revision has.
fn made_for(template: &PodTemplateSpec) -> (Option<&str>, Option<&str>, Option<i64>) {
    let metadata = template.metadata.as_ref();
    let labels = metadata.and_then(|it| it.labels.as_ref());
    let annotations = metadata.and_then(|it| it.annotations.as_ref());
    let grace = template.spec.as_ref();
    (
        labels.and_then(|it| it.get(labels::REVISION).map(String::as_str)),
        annotations.and_then(|it| it.get(labels::TOKEN_SINCE).map(String::as_str)),
        grace.and_then(|it| it.termination_grace_period_seconds),
    )
}

fn template_of(deployment: &Deployment) -> Option<&PodTemplateSpec> {
    Some(&deployment.spec.as_ref()?.template)
}

/// # Panics
/// Never: pod templates serialize to JSON.
fn digest(template: Option<&PodTemplateSpec>) -> String {
    let json = serde_json::to_value(template).expect("pod templates serialize to JSON");
    let digest = Sha256::digest(json.to_string());
    let mut hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    hex.truncate(DIGITS);
    hex
}

#[cfg(test)]
mod tests;
