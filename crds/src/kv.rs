//! The KV cache: page size, element type and transport.

use crate::rules;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[x_kube(validation = rules::SHARING_NEEDS_SHARED_MEMORY.cel())]
#[serde(rename_all = "camelCase")]
pub struct KvSpec {
    /// Tokens of one page, the unit of transfer; at most 64 with `engine.kind` `pdserve`. Default: the engine's, which is
    /// 16 for `pdserve`, and follows from attention's kernels for `sglang` and `vllm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = [1, 2, 4, 8, 16, 32, 64, 128]))]
    pub page_size: Option<i32>,
    /// Element type of the cache. `auto` takes the one of the computation. `pdserve` has `float32`,
    /// `bfloat16` and `fp8_e4m3`, `sglang` has `bfloat16`, `fp8_e4m3` and `fp8_e5m2`, `vllm` those and `float16`.
    #[serde(default)]
    pub dtype: KvDtype,
    /// Path of the KV bytes from prefill to decode. With `pdserve`, `auto` takes the fastest that a pair
    /// shares, and the names of SGLang's engines mean `auto`; `sglang` has no `shm`, `tcp` and `rdma`, and
    /// `vllm` has `nixl` alone.
    #[serde(default)]
    pub transport: KvTransport,
    /// Let workers of one node share KV memory, through a folder of that node, where `transport` is
    /// `auto` or `shm`. The operator's installation must offer the folder (helm value
    /// `sharedMemory.hostPath`), and the pods need a namespace that allows hostPath volumes and an init
    /// container that runs as root, which the Baseline pod security standard does not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub node_shared_memory: bool,
}

#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum KvDtype {
    #[default]
    Auto,
    Float32,
    Float16,
    Bfloat16,
    Fp8E4m3,
    Fp8E5m2,
}

#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum KvTransport {
    #[default]
    Auto,
    Shm,
    Tcp,
    Rdma,
    Mooncake,
    Nixl,
    Ascend,
    Mori,
}

// === impl KvDtype ===

impl KvDtype {
    /// The word of the engine's `--kv-cache-dtype`.
    pub fn flag(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Float32 => "float32",
            Self::Float16 => "float16",
            Self::Bfloat16 => "bfloat16",
            Self::Fp8E4m3 => "fp8_e4m3",
            Self::Fp8E5m2 => "fp8_e5m2",
        }
    }
}

// === impl KvTransport ===

impl KvTransport {
    /// The word of the engine's `--disaggregation-transfer-backend`.
    pub fn flag(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Shm => "shm",
            Self::Tcp => "tcp",
            Self::Rdma => "rdma",
            Self::Mooncake => "mooncake",
            Self::Nixl => "nixl",
            Self::Ascend => "ascend",
            Self::Mori => "mori",
        }
    }
}
