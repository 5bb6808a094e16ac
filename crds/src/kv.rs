//! The KV cache: page size, element type and transport.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct KvSpec {
    /// Tokens of one page, the unit of transfer; at most 64 with `engine.kind` `pdserve`.
    #[serde(default = "page_size")]
    #[schemars(extend("enum" = [1, 2, 4, 8, 16, 32, 64, 128]))]
    pub page_size: i32,
    /// Element type of the cache. `auto` takes the one of the computation. `pdserve` has `float32` and
    /// `bfloat16`, `sglang` has `bfloat16`, `fp8_e4m3` and `fp8_e5m2`.
    #[serde(default)]
    pub dtype: KvDtype,
    /// Path of the KV bytes from prefill to decode. With `pdserve`, `auto` takes the fastest that a pair
    /// shares, and the names of SGLang's engines mean `auto`; `sglang` has no `shm`, `tcp` and `rdma`.
    #[serde(default)]
    pub transport: KvTransport,
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
}

// === impl KvSpec ===

impl Default for KvSpec {
    fn default() -> Self {
        Self {
            page_size: page_size(),
            dtype: KvDtype::Auto,
    Ascend,
    Mori,
    /// Moves nothing: for trials of SGLang without a network.
    Fake,
            transport: KvTransport::Auto,
        }
    }
}

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
        }
    }
}

fn page_size() -> i32 {
    16
}
            Self::Ascend => "ascend",
            Self::Mori => "mori",
            Self::Fake => "fake",
