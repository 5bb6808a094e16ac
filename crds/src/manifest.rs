//! The generated files: CustomResourceDefinitions as YAML.

use crate::pd_deployment::PdDeployment;
use crate::pd_pool::PdPool;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::Value;

/// A generated file of `crds/yaml/`.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// Name of the file: the plural of the kind.
    pub file_name: String,
    pub yaml: String,
}

/// Every file of `crds/yaml/`.
pub fn manifests() -> Vec<Manifest> {
    vec![manifest(&PdDeployment::crd()), manifest(&PdPool::crd())]
}

/// The OpenAPI schema of a `PDDeployment`.
pub(crate) fn open_api_schema() -> Value {
    let crd = serde_json::to_value(PdDeployment::crd()).expect("a CRD serializes to JSON");
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

fn manifest(crd: &CustomResourceDefinition) -> Manifest {
    let yaml = serde_saphyr::to_string(crd).expect("a CRD serializes to YAML");
    Manifest {
        file_name: format!("{}.yaml", crd.spec.names.plural),
        yaml,
    }
}

#[cfg(test)]
mod tests;
