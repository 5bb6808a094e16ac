//! Keeps the record of revisions: one for each that was wanted, the last dozen of them. The newest also
//! carries the whole spec that was last valid, which is kept up while a later edit is refused.

use super::apply::{Writer, merge_params};
use super::error::{ApplyError, failed};
use crate::controller::build::config::BuildConfig;
use crate::controller::build::history::{HISTORY_MAX, build_record};
use crate::controller::validate;
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::ResourceExt;
use kube::api::Patch;
use pd_crds::json_order::sorted;
use pd_crds::record::restored;
use pd_crds::{PdDeployment, PdDeploymentSpec};
use pd_protocol::labels::ACCEPTED_SPEC;
use serde_json::{json, to_value};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Kubernetes' bound of all annotations of an object is 256 KiB; a larger spec is not kept.
const ACCEPTED_BYTES_MAX: usize = 200 * 1024;

/// Of a record, only its number is read, and which spec it carries: thousands of them are kept.
pub(crate) fn pruned(mut record: ControllerRevision) -> ControllerRevision {
    record.data = None;
    if let Some(accepted) = record.annotations_mut().get_mut(ACCEPTED_SPEC) {
        *accepted = digest_of(accepted);
    }
    record
}

/// The spec that was last valid, as the newest record says.
fn spec_of(
    deployment: &PdDeployment,
    newest: &ControllerRevision,
    config: &BuildConfig,
) -> Option<PdDeploymentSpec> {
    if let Some(accepted) = newest.annotations().get(ACCEPTED_SPEC) {
        return serde_json::from_str(accepted).ok();
    }
    // An operator before this one recorded only what pods are made of, and only of a valid spec.
    if build_record(deployment, newest.revision).name_any() == newest.name_any() {
        return Some(deployment.spec.clone());
    }
    let spec = to_value(&deployment.spec).ok()?;
    let spec = restored(&spec, &newest.data.as_ref()?.0)?;
    let before = PdDeployment {
        spec: serde_json::from_value(spec).ok()?,
        ..deployment.clone()
    };
    let valid = validate::for_a_cluster(&before, config);
    valid.is_ok().then_some(before.spec)
}

/// A spec as a record carries it; empty where it is too large, which means that none is kept.
fn accepted(spec: &PdDeploymentSpec) -> String {
    let text = sorted(json!(spec)).to_string();
    match text.len() {
        ..=ACCEPTED_BYTES_MAX => text,
        _ => String::new(),
    }
}

fn digest_of(text: &str) -> String {
    let digest = Sha256::digest(text);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The deployment as it was last valid; nothing if it never was.
pub(crate) async fn last_valid(writer: &Writer<'_>) -> Result<Option<PdDeployment>, ApplyError> {
    let Some(newest) = records(writer).pop() else {
        return Ok(None);
    };
    let name = newest.name_any();
    let stored = writer.api::<ControllerRevision>().get_opt(&name).await;
    let stored = stored.map_err(|source| failed::<ControllerRevision>("get", &name, source))?;
    let spec =
        stored.and_then(|newest| spec_of(writer.deployment, &newest, &writer.context.config));
    Ok(spec.map(|spec| PdDeployment {
        spec,
        ..writer.deployment.clone()
    }))
}

/// Records what the spec asks for as the newest revision, and forgets the oldest.
pub(crate) async fn record_revision(writer: &Writer<'_>) -> Result<(), ApplyError> {
    let known = records(writer);
    let newest = known.last().map_or(0, |record| record.revision);
    let accepted = accepted(&writer.deployment.spec);
    let mut record = build_record(writer.deployment, newest + 1);
    let annotations = record.annotations_mut();
    annotations.insert(ACCEPTED_SPEC.to_owned(), accepted.clone());
    let name = record.name_any();
    match known.iter().find(|known| known.name_any() == name) {
        Some(known) if known.revision == newest => {
            let carried = known.annotations().get(ACCEPTED_SPEC);
            if carried != Some(&digest_of(&accepted)) {
                renew(writer, &name, newest, &accepted).await?;
            }
            return Ok(());
        }
        // Gone back to: it is the newest again.
        Some(_) => renew(writer, &name, newest + 1, &accepted).await?,
        None => {
            writer
                .create(&record, &writer.context.index.revisions, pruned)
                .await?;
        }
    }
    let others = known.iter().filter(|known| known.name_any() != name);
    let others: Vec<&Arc<ControllerRevision>> = others.collect();
    let too_many = others.len().saturating_sub(HISTORY_MAX);
    for record in &others[..too_many] {
        writer
            .remove::<ControllerRevision>(&record.name_any(), record.uid())
            .await?;
    }
    Ok(())
}

/// The records of this deployment, oldest first.
fn records(writer: &Writer<'_>) -> Vec<Arc<ControllerRevision>> {
    let mut known = writer.context.index.revisions.of(&writer.key());
    known.retain(|record| {
        let owners = record.owner_references();
        let name = record.name_any();
        writer
            .check_owner::<ControllerRevision>(&name, owners)
            .is_ok()
    });
    known.sort_by_key(|record| record.revision);
    known
}

async fn renew(
    writer: &Writer<'_>,
    name: &str,
    number: i64,
    accepted: &str,
) -> Result<(), ApplyError> {
    let annotations = json!({ACCEPTED_SPEC: accepted});
    let patch = json!({"metadata": {"annotations": annotations}, "revision": number});
    let api = writer.api::<ControllerRevision>();
    let patched = api.patch(name, &merge_params(), &Patch::Merge(patch)).await;
    patched.map_err(|source| failed::<ControllerRevision>("renew", name, source))?;
    Ok(())
}

#[cfg(test)]
mod tests;
