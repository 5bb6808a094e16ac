//! The generated files: CustomResourceDefinitions as YAML.

use crate::json_order::sorted;
use crate::pd_deployment::PdDeployment;
use crate::pd_pool::PdPool;
use crate::status::UNSEEN;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON,
};
use kube::CustomResourceExt;
use serde_json::{Value, json};

/// A generated file of `crds/yaml/`.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// Name of the file: the plural of the kind.
    pub file_name: String,
    pub kind: String,
    pub yaml: String,
    /// The kind's `openAPIV3Schema`.
    pub schema: Value,
}

/// Every file of `crds/yaml/`.
pub fn manifests() -> Vec<Manifest> {
    [PdDeployment::crd(), PdPool::crd()]
        .map(|crd| manifest(&unseen_at_first(crd)))
        .into()
}

/// The OpenAPI schema of a `PDDeployment`.
pub(crate) fn open_api_schema() -> Value {
    schema(&PdDeployment::crd())
}

fn schema(crd: &CustomResourceDefinition) -> Value {
    let schema = crd.spec.versions.first().and_then(|it| it.schema.as_ref());
    let schema = schema.and_then(|it| it.open_api_v3_schema.as_ref());
    sorted(serde_json::to_value(schema).expect("a schema serializes to JSON"))
}

fn manifest(crd: &CustomResourceDefinition) -> Manifest {
    let json = sorted(serde_json::to_value(crd).expect("a CRD serializes to JSON"));
    let yaml = serde_saphyr::to_string(&json).expect("a CRD serializes to YAML");
    Manifest {
        file_name: format!("{}.yaml", crd.spec.names.plural),
        kind: crd.spec.names.kind.clone(),
        yaml,
        schema: schema(crd),
    }
}

/// An object that no operator has seen is not taken for one that is as it is wanted. Source: kstatus,
/// which compares generations where it finds both.
fn unseen_at_first(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        let schema = version.schema.as_mut();
        let schema = schema.and_then(|it| it.open_api_v3_schema.as_mut());
        let fields = schema.and_then(|it| it.properties.as_mut());
        if let Some(status) = fields.and_then(|it| it.get_mut("status")) {
            status.default = Some(JSON(json!({"observedGeneration": UNSEEN})));
        }
    }
    crd
}

#[cfg(test)]
mod tests;
