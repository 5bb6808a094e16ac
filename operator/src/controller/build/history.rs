//! What a revision was made of, kept so that it can be gone back to.

use super::component::Component;
use super::revision;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::ResourceExt;
use pd_crds::PdDeployment;
use pd_crds::record::recorded;

/// Old revisions that are kept.
pub(crate) const HISTORY_MAX: usize = 10;

/// The record of what the spec asks for now, as number `number`.
pub(crate) fn build_record(deployment: &PdDeployment, number: i64) -> ControllerRevision {
    let revision = revision::of_pools(&deployment.spec);
    let name = format!("{}-{revision}", deployment.name_any());
    ControllerRevision {
        metadata: Component::Router.metadata(deployment, name),
        revision: number,
        data: Some(RawExtension(recorded(&deployment.spec))),
    }
}

#[cfg(test)]
mod tests {
    //! Facts about records.

    use super::*;
    use pd_crds::document;
    use serde_json::Value;

    #[test]
    fn a_record_names_its_revision_and_holds_no_size() {
        let text = "apiVersion: pdserve.io/v1alpha1
kind: PDDeployment
metadata: {name: tiny}
spec:
  model: {source: {hostPath: {path: /m.gguf}}}
  pools: {prefill: {replicas: 3, args: [{name: log-level, value: info}]}}
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
        let args = &data["spec"]["pools"]["prefill"]["args"];
        assert_eq!(args[0]["value"], "info");
        assert_eq!(data["spec"]["pools"]["prefill"]["replicas"], Value::Null);
    }
}
