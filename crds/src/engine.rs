//! Which engine the workers run and with which of its flags.

use crate::rules;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[x_kube(validation = rules::OTHERS_NEED_IMAGE.cel())]
#[serde(rename_all = "camelCase")]
pub struct EngineSpec {
    /// `pdserve` is the engine of this project, `sglang` and `vllm` are the servers of SGLang and vLLM.
    #[serde(default)]
    pub kind: EngineKind,
    /// Container image. Default: the operator's for `pdserve`; required for the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub image: Option<String>,
    /// Program, and the words before its flags, such as `[/opt/sglang/bin/python, -m, sglang.launch_server]`. Default: the
    /// engine's own, of its image, or with `pd-operator local` of the `PATH`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 1024)))]
    pub command: Vec<String>,
    /// ServiceAccount of the workers' pods, without its token, for what a cluster ties to an account:
    /// a cloud's identity, an image policy. The operator's installation lists those that may be named
    /// (helm value `overrides.serviceAccounts`). Default: the namespace's `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub service_account_name: Option<String>,
    /// Flags for the workers of both pools; a pool's own `args` come on top. With GPUs among a pool's
    /// `resources` and `kind` `pdserve`, the operator adds `device` `cuda`, unless `device` is given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    #[schemars(length(max = 64))]
    pub args: Vec<EngineArg>,
}

#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    #[default]
    Pdserve,
    Sglang,
    Vllm,
}

/// One flag of the engine.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct EngineArg {
    /// Name without the dashes, such as `chunked-prefill-size`.
    #[x_kube(validation = rules::ARG_NOT_RESERVED.cel())]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z][a-z0-9-]*$"))]
    pub name: String,
    /// Value; absent for a flag that takes none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub value: Option<String>,
}
