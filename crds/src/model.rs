//! Where the weights come from and under which name they are served.

use crate::rules;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ModelSpec {
    /// Where the model's files are: exactly one kind of source.
    pub source: ModelSource,
    /// Name that clients put into `model`. Default: the name of the PDDeployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub served_model_name: Option<String>,
}

#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[x_kube(validation = rules::ONE_SOURCE.cel())]
#[serde(rename_all = "camelCase")]
pub struct ModelSource {
    /// A folder or GGUF file that every node of the pools has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_path: Option<HostPathSource>,
    /// A folder or GGUF file on a PersistentVolumeClaim of the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pvc: Option<PvcSource>,
    /// A repository on the Hugging Face hub. It is fetched once to a volume, checked, and resumed where it was cut;
    /// workers start when it is whole, and read it there. `pd-operator local` fetches it to the user's own cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hugging_face: Option<HuggingFaceSource>,
    /// An OCI image or artifact that holds the files, mounted as an image volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageSource>,
}

#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct HostPathSource {
    /// Absolute path on the node. `pd-operator local` also takes one relative to the YAML's folder.
    #[schemars(length(min = 1, max = 4096))]
    pub path: String,
}

#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PvcSource {
    /// Name of the PersistentVolumeClaim; it is mounted read-only.
    #[schemars(length(min = 1, max = 253))]
    pub claim_name: String,
    /// Path of the model inside the volume. Default: its root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096), regex(pattern = r"^[^/]"))]
    pub path: Option<String>,
}

#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct HuggingFaceSource {
    /// Repository, such as `Qwen/Qwen3-8B`.
    #[schemars(
        length(min = 3, max = 193),
        regex(pattern = r"^[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+$")
    )]
    pub repo: String,
    /// Branch, tag or commit. A branch is resolved once, to the commit in `status.model.commit`. Default: `main`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub revision: Option<String>,
    /// Only this file of it, such as one GGUF of many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^[^/]"))]
    pub file: Option<String>,
    /// Address of a mirror that speaks the hub's API. Default: https://huggingface.co.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 8, max = 512), regex(pattern = r"^https?://"))]
    pub endpoint: Option<String>,
    /// Secret key with the access token of a gated repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_secret_ref: Option<SecretKeyRef>,
    /// Where it is fetched to; on a cluster it has to be given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<ModelCache>,
}

/// A volume that holds models as the hub's own tools lay them out; several PDDeployments may share one.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ModelCache {
    /// A PersistentVolumeClaim of the same namespace that pods of several nodes can mount at once.
    pub pvc: CachePvc,
}

#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct CachePvc {
    /// Its name. Workers mount it read-only.
    #[schemars(length(min = 1, max = 253))]
    pub claim_name: String,
}

/// What the hub calls the branch that is meant where none is named.
const MAIN: &str = "main";

// === impl HuggingFaceSource ===

impl HuggingFaceSource {
    /// The branch, tag or commit that is meant.
    pub fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or(MAIN)
    }

    /// The claim of the volume; empty where none is named, which a cluster refuses.
    pub fn claim_name(&self) -> &str {
        let cache = self.cache.as_ref();
        cache.map_or(
            "",
            |ModelCache {
                 pvc: CachePvc { claim_name },
             }| claim_name,
        )
    }
}

#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ImageSource {
    /// Reference of the image, such as `registry.example/models/qwen3@sha256:…`.
    #[schemars(length(min = 1, max = 1024))]
    pub reference: String,
    /// Path of the model inside the image. Default: its root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096), regex(pattern = r"^[^/]"))]
    pub path: Option<String>,
}

#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeyRef {
    /// Name of a Secret of the same namespace.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key in the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}
