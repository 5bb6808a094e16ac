//! Where the weights come from and under which name they are served.

use crate::rules;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[x_kube(validation = rules::WEIGHTS_LIE_IN_A_FOLDER.cel())]
#[serde(rename_all = "camelCase")]
pub struct ModelSpec {
    /// Where the model's files are: exactly one kind of source.
    pub source: ModelSource,
    /// Name that clients put into `model`. Default: the name of the PDDeployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub served_model_name: Option<String>,
    /// Weights that workers take without a restart: a change of it pauses routers, lets what is in flight end, and has all
    /// workers load them; requests wait meanwhile. To give it first, or to remove it, replaces workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<WeightsSpec>,
}

#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[x_kube(validation = rules::WEIGHTS_STAY_INSIDE.cel())]
#[serde(rename_all = "camelCase")]
pub struct WeightsSpec {
    /// Path of the checkpoint inside the source, such as `step-1200`: of the same network as the one before.
    #[schemars(
        length(min = 1, max = 1024),
        regex(pattern = r"^[A-Za-z0-9_.][A-Za-z0-9_.-]*(/[A-Za-z0-9_.-]+)*$")
    )]
    pub path: String,
    /// Their name in answers (`weight_version`). Default: the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[A-Za-z0-9_.][A-Za-z0-9_.:/-]*$")
    )]
    pub version: Option<String>,
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
    /// A repository on the Hugging Face hub. It is fetched once to a volume, or once to each node; checked, and resumed
    /// where it was cut. `pd-operator local` fetches it to the user's own cache.
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

/// Where models are kept, laid out as the hub's own tools do: exactly one kind of place, which several PDDeployments may
/// share.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[x_kube(validation = rules::ONE_CACHE.cel())]
#[serde(rename_all = "camelCase")]
pub struct ModelCache {
    /// A PersistentVolumeClaim of the same namespace that pods of several nodes can mount at once. One pod without a GPU
    /// fetches, and workers are made when all is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pvc: Option<CachePvc>,
    /// A folder of each node, such as one on its NVMe disks. Each worker fetches what its node lacks before its engine starts,
    /// and holds its GPUs meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_path: Option<CacheHostPath>,
}

#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct CachePvc {
    /// Its name. Workers mount it read-only.
    #[schemars(length(min = 1, max = 253))]
    pub claim_name: String,
    /// Remove commits from the volume, before another is fetched to it, that the operator fetched, that no PDDeployment of
    /// the namespace has now or in its history, and that none fetched in so many days. Default: nothing is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3650))]
    pub remove_unused_after_days: Option<i32>,
}

#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct CacheHostPath {
    /// Absolute path of a folder that the operator's installation opens. Models of a namespace are in a folder of its name
    /// therein, which is made where it lacks. Engines mount it read-only.
    #[schemars(length(min = 1, max = 4096), regex(pattern = r"^/"))]
    pub path: String,
}

/// The one place of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachePlace<'a> {
    /// The volume of this claim.
    Claim(&'a str),
    /// This folder of each node.
    Nodes(&'a str),
}

/// What the hub calls the branch that is meant where none is named.
const MAIN: &str = "main";

// === impl WeightsSpec ===

impl WeightsSpec {
    /// Their name in answers.
    pub fn version(&self) -> &str {
        self.version.as_deref().unwrap_or(&self.path)
    }
}

// === impl HuggingFaceSource ===

impl HuggingFaceSource {
    /// The branch, tag or commit that is meant.
    pub fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or(MAIN)
    }

    /// Where it is fetched to; nothing where no place is named, which a cluster refuses.
    pub fn place(&self) -> Option<CachePlace<'_>> {
        self.cache.as_ref().and_then(ModelCache::place)
    }
}

// === impl ModelCache ===

impl ModelCache {
    fn place(&self) -> Option<CachePlace<'_>> {
        let Self { pvc, host_path } = self;
        match (pvc, host_path) {
            (Some(pvc), _) => Some(CachePlace::Claim(&pvc.claim_name)),
            (None, Some(folder)) => Some(CachePlace::Nodes(&folder.path)),
            (None, None) => None,
        }
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
