//! Commits of models that a clean-up of a volume must leave: those that a deployment of the namespace has, or can go
//! back to.

use super::apply::Writer;
use super::error::{ApplyError, failed};
use crate::controller::build::fetch::CleanUp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use pd_crds::PdDeployment;
use pd_crds::model::{CachePvc, HuggingFaceSource};
use pd_hub::Commit;
use pd_protocol::labels;
use serde_json::Value;

/// The clean-up that a source asks for.
pub(super) async fn clean_up(
    writer: &Writer<'_>,
    source: &HuggingFaceSource,
) -> Result<Option<CleanUp>, ApplyError> {
    let claim = source.cache.as_ref().and_then(|cache| cache.pvc.as_ref());
    let Some(CachePvc {
        claim_name: _,
        remove_unused_after_days: Some(unused_days),
    }) = claim
    else {
        return Ok(None);
    };
    let unused_days = *unused_days;
    let all = ListParams::default();
    let api: Api<PdDeployment> = Api::namespaced(writer.context.client.clone(), writer.namespace);
    let deployments = api.list(&all).await;
    let deployments =
        deployments.map_err(|source| failed::<PdDeployment>("list", "all", source))?;
    let ours = all.labels(labels::DEPLOYMENT);
    let records = writer.api::<ControllerRevision>().list(&ours).await;
    let records = records.map_err(|source| failed::<ControllerRevision>("list", "all", source))?;
    let has = deployments.iter().flat_map(of_deployment);
    let had = records.iter().flat_map(of_record);
    Ok(Some(CleanUp {
        unused_days,
        keep: has.chain(had).collect(),
    }))
}

fn of_deployment(deployment: &PdDeployment) -> impl Iterator<Item = String> {
    let status = deployment.status.as_ref();
    let model = status.and_then(|status| status.model.as_ref());
    let resolved = model.and_then(|model| kept(&model.repo, &model.commit));
    let source = deployment.spec.model.source.hugging_face.as_ref();
    let named = source.and_then(|source| kept(&source.repo, source.revision()));
    resolved.into_iter().chain(named)
}

/// What a revision was made of, and the spec that its record carries.
fn of_record(record: &ControllerRevision) -> impl Iterator<Item = String> {
    let data = record.data.as_ref().map(|data| data.0["spec"].clone());
    let accepted = record.annotations().get(labels::ACCEPTED_SPEC);
    let accepted = accepted.and_then(|text| serde_json::from_str::<Value>(text).ok());
    data.into_iter().chain(accepted).filter_map(|spec| {
        let source = &spec["model"]["source"]["huggingFace"];
        kept(source["repo"].as_str()?, source["revision"].as_str()?)
    })
}

/// Nothing for a branch: what it was resolved to stands elsewhere.
fn kept(repo: &str, revision: &str) -> Option<String> {
    let commit = Commit::parse(revision)?;
    Some(format!("{repo}@{commit}"))
}
