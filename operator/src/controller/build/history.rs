//! What a revision was made of, kept so that it can be gone back to.

use super::component::Component;
use super::revision;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::ResourceExt;
use pd_crds::PdDeployment;
use serde_json::{Value, json};

/// Revisions kept besides the one that is wanted.
pub(crate) const HISTORY_MAX: usize = 10;

/// Fields of a pool that change its size, and are in no revision.
const SIZES: [&str; 3] = ["replicas", "minReplicas", "maxReplicas"];

/// The record of what the spec asks for now, as number `number`.
pub(crate) fn build_record(deployment: &PdDeployment, number: i64) -> ControllerRevision {
    let revision = revision::of_pools(&deployment.spec);
    let name = format!("{}-{revision}", deployment.name_any());
    ControllerRevision {
        metadata: Component::Router.metadata(deployment, name),
        revision: number,
        data: Some(RawExtension(recorded(deployment))),
    }
}

/// The parts of the spec that pods are made of, as the user wrote them.
fn recorded(deployment: &PdDeployment) -> Value {
    let spec = &deployment.spec;
    let pool = |pool: &pd_crds::pool::PoolSpec| {
        let mut pool = json!(pool);
        if let Some(fields) = pool.as_object_mut() {
            fields.retain(|name, _| !SIZES.contains(&name.as_str()));
        }
        pool
    };
    json!({"spec": {
        "model": spec.model,
        "engine": spec.engine,
        "kv": spec.kv,
        "pools": {"prefill": pool(&spec.pools.prefill), "decode": pool(&spec.pools.decode)},
    }})
}

#[cfg(test)]
mod tests {
    //! Facts about records.

    use super::*;
    use pd_crds::document;

    #[test]
    fn a_record_names_its_revision_and_holds_no_size() {
        let text = "apiVersion: pdserve.io/v1alpha1
kind: PDDeployment
metadata: {name: tiny}
spec:
  model: {source: {hostPath: {path: /m.gguf}}}
  pools: {prefill: {replicas: 3, tp: 2}}
";
        let deployment: PdDeployment = document::parse(text).unwrap();
        let record = build_record(&deployment, 4);
        let revision = revision::of_pools(&deployment.spec);
        assert_eq!(record.metadata.name, Some(format!("tiny-{revision}")));
        let data = record.data.unwrap().0;
        assert_eq!(
            data["spec"]["model"]["source"]["hostPath"]["path"],
            "/m.gguf"
        );
        assert_eq!(data["spec"]["pools"]["prefill"]["tp"], 2);
        assert_eq!(data["spec"]["pools"]["prefill"]["replicas"], Value::Null);
    }
}
