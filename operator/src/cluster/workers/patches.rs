//! Patches of a worker's pod, each of the pod as it was seen.

use crate::cluster::apply::{Writer, merge_params, now};
use crate::cluster::error::{ApplyError, failed};
use crate::cluster::facts::PodFacts;
use kube::ResourceExt;
use kube::api::Patch;
use pd_crds::pod::Pod;
use pd_protocol::labels::{self, ROUTABLE_GATE};
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub(super) async fn admit(
    writer: &Writer<'_>,
    facts: &PodFacts,
    gang_is_whole: bool,
) -> Result<bool, ApplyError> {
    let worker = &facts.pod;
    let mut metadata = as_seen(worker);
    if gang_is_whole {
        metadata["labels"] = json!({labels::GANG_WHOLE: "true"});
    }
    if facts.nodes() > 1 {
        metadata["annotations"] = json!({labels::MEMBERS: facts.members_digest()});
    }
    let patch = json!({
        "metadata": metadata,
        "status": {"conditions": [{
            "type": ROUTABLE_GATE,
            "status": "True",
            "reason": "RoutersAcknowledged",
            "message": "every router sends requests to this worker",
            "lastTransitionTime": now(),
        }]},
    });
    let name = worker.name_any();
    let patched = writer
        .api::<Pod>()
        .patch_status(&name, &merge_params(), &Patch::Strategic(patch))
        .await;
    took_effect(patched).map_err(|source| failed::<Pod>("admit", &name, source))
}

pub(super) async fn label(
    writer: &Writer<'_>,
    worker: &Pod,
    labels: &BTreeMap<&'static str, &'static str>,
) -> Result<bool, ApplyError> {
    let mut metadata = as_seen(worker);
    metadata["labels"] = json!(labels);
    patch_metadata(writer, worker, metadata, "label").await
}

pub(super) async fn leave(writer: &Writer<'_>, worker: &Pod) -> Result<bool, ApplyError> {
    let mut metadata = as_seen(worker);
    metadata["annotations"] = json!({labels::LEAVING_SINCE: now()});
    metadata["labels"] = json!({labels::LEAVING: "true"});
    patch_metadata(writer, worker, metadata, "mark").await
}

async fn patch_metadata(
    writer: &Writer<'_>,
    worker: &Pod,
    metadata: Value,
    verb: &'static str,
) -> Result<bool, ApplyError> {
    let name = worker.name_any();
    let patch = Patch::Merge(json!({"metadata": metadata}));
    let api = writer.api::<Pod>();
    let patched = api.patch(&name, &merge_params(), &patch).await;
    took_effect(patched).map_err(|source| failed::<Pod>(verb, &name, source))
}

/// Metadata of a patch that is for a pod as it was seen, and for no other: where the watch is late, a
/// second patch would only move a time, and cause another event.
pub(super) fn as_seen(pod: &Pod) -> Value {
    json!({"uid": pod.uid(), "resourceVersion": pod.resource_version()})
}

/// Whether a pod was patched. One that has changed or gone since is no failure: the watch reports it, and the next
/// reconcile decides by that.
pub(super) fn took_effect<T>(patched: kube::Result<T>) -> kube::Result<bool> {
    match patched {
        Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => Ok(false),
        patched => patched.map(|_| true),
    }
}
