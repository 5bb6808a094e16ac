//! The routers' Deployment, as it is applied. Workers outlive a newer operator because pods are never
//! applied again; routers do because the pod template that stands is kept for as long as it was made
//! for this spec. Another spec, another admin token and `kubectl pd restart` replace them.

use super::apply::Writer;
use super::error::ApplyError;
use super::router_template::{Kept, Template, digest, template_of};
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;
use pd_protocol::labels;
use std::sync::Arc;

/// `made`, with the pod template that stands where another operator made that for the same spec.
pub(crate) async fn with_kept_template(
    writer: &Writer<'_>,
    mut made: Deployment,
) -> Result<Deployment, ApplyError> {
    let digest = digest(template_of(&made));
    let kept = kept(writer, &made, &digest).await?;
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
async fn kept(
    writer: &Writer<'_>,
    made: &Deployment,
    digest: &str,
) -> Result<Option<Arc<Kept>>, ApplyError> {
    let (uid, name) = (writer.uid(), made.name_any());
    let memories = &writer.context.memories;
    if writer
        .context
        .index
        .deployments
        .find(&writer.key(), &name)
        .is_none()
    {
        memories.update(&uid, |memory| memory.template = None);
        return Ok(None);
    }
    let known = memories
        .read(&uid, |memory| memory.template.clone())
        .flatten();
    if let Some(known) = known.filter(|known| known.made == digest) {
        return Ok(known.kept);
    }
    let live = writer.live::<Deployment>(&name).await?;
    let kept = live.and_then(|live| Kept::of(live, made, digest));
    let kept = kept.map(Arc::new);
    let template = Template {
        made: digest.to_owned(),
        kept: kept.clone(),
    };
    memories.update(&uid, |memory| memory.template = Some(template));
    Ok(kept)
}

#[cfg(test)]
mod tests;
