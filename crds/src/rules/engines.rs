//! What the chosen engine cannot do, refused before a container starts. A rule goes as soon as the
//! engine learns what it refuses.

use super::CelRule;

/// Both pools under one rule: the macro writes it for each, at its own field.
macro_rules! of_pool {
    ($pool:literal, ranks) => {
        CelRule::new(
            concat!(
                "self.engine.kind != 'pdserve' || (self.pools.",
                $pool,
                ".tp <= 1 && self.pools.",
                $pool,
                ".pp <= 1 && self.pools.",
                $pool,
                ".dp <= 1 && self.pools.",
                $pool,
                ".nodes <= 1)"
            ),
            RANKS,
        )
        .at(concat!(".pools.", $pool))
    };
    ($pool:literal, gpus) => {
        CelRule::new(
            concat!(
                "!has(self.pools.",
                $pool,
                ".resources) || !has(self.pools.",
                $pool,
                ".resources.limits) || !('nvidia.com/gpu' in self.pools.",
                $pool,
                ".resources.limits) || string(self.pools.",
                $pool,
                ".resources.limits['nvidia.com/gpu']) in ['0', string(self.pools.",
                $pool,
                ".tp * self.pools.",
                $pool,
                ".pp * ((has(self.engine.args) && self.engine.args.exists(a, a.name == 'enable-dp-attention')) || \
                 (has(self.pools.",
                $pool,
                ".args) && self.pools.",
                $pool,
                ".args.exists(a, a.name == 'enable-dp-attention')) ? 1 : self.pools.",
                $pool,
                ".dp) / self.pools.",
                $pool,
                ".nodes)]"
            ),
            GPUS,
        )
        .at(concat!(".pools.", $pool, ".resources"))
    };
}

const RANKS: &str = "engine.kind pdserve runs one rank per replica so far: set tp, pp, dp and nodes \
     to 1 and raise replicas, or choose engine.kind sglang or vllm";
const GPUS: &str = "the GPUs of a replica (nvidia.com/gpu × nodes) must be as many as its ranks \
     (tp × pp × dp; with enable-dp-attention tp × pp), because each rank uses one; leave nvidia.com/gpu out to run \
     on CPUs";

pub const PREFILL_RANKS: CelRule = of_pool!("prefill", ranks);
pub const DECODE_RANKS: CelRule = of_pool!("decode", ranks);
pub const PREFILL_GPUS: CelRule = of_pool!("prefill", gpus);
pub const DECODE_GPUS: CelRule = of_pool!("decode", gpus);

/// Values of the flag `dtype`; `float` is SGLang's other word for `float32`.
pub const PDSERVE_DTYPES: [&str; 4] = ["auto", "bfloat16", "float", "float32"];

pub const PDSERVE_DTYPE: CelRule = CelRule::new(
    "self.engine.kind != 'pdserve' || \
     ((!has(self.engine.args) || self.engine.args.all(a, a.name != 'dtype' || (has(a.value) && \
     a.value in ['auto', 'bfloat16', 'float', 'float32']))) && \
     (!has(self.pools.prefill.args) || self.pools.prefill.args.all(a, a.name != 'dtype' || \
     (has(a.value) && a.value in ['auto', 'bfloat16', 'float', 'float32']))) && \
     (!has(self.pools.decode.args) || self.pools.decode.args.all(a, a.name != 'dtype' || \
     (has(a.value) && a.value in ['auto', 'bfloat16', 'float', 'float32']))))",
    "engine.kind pdserve computes in float32 or bfloat16 so far: set the value of dtype to auto, \
     float32 or bfloat16",
);

pub const PDSERVE_KV_DTYPE: CelRule = CelRule::new(
    "self.engine.kind != 'pdserve' || self.kv.dtype in ['auto', 'float32', 'bfloat16', 'fp8_e4m3']",
    "engine.kind pdserve keeps KV in float32, bfloat16 or fp8_e4m3: set kv.dtype to one of them, or to \
     auto for the model's",
)
.at(".kv.dtype");

/// Attention folds blocks of 64 keys, so a page is at most one block.
pub const PDSERVE_PAGE_MAX: i32 = 64;

pub const PDSERVE_PAGE: CelRule = CelRule::new(
    "self.engine.kind != 'pdserve' || !has(self.kv.pageSize) || self.kv.pageSize <= 64",
    "engine.kind pdserve has pages of at most 64 tokens: set kv.pageSize to 1, 2, 4, 8, 16, 32 or \
     64",
)
.at(".kv.pageSize");

pub const SGLANG_TRANSPORT: CelRule = CelRule::new(
    "self.engine.kind != 'sglang' || \
     self.kv.transport in ['auto', 'mooncake', 'nixl', 'ascend', 'mori']",
    "engine.kind sglang has the transports mooncake, nixl, ascend and mori: set kv.transport \
     to one of them, or to auto for SGLang's default",
)
.at(".kv.transport");

pub const OTHERS_SHARE_NO_MEMORY: CelRule = CelRule::new(
    "self.engine.kind == 'pdserve' || !has(self.kv.nodeSharedMemory) || !self.kv.nodeSharedMemory",
    "kv.nodeSharedMemory is for engine.kind pdserve: leave it out",
)
.at(".kv.nodeSharedMemory");

pub const SGLANG_KV_DTYPE: CelRule = CelRule::new(
    "self.engine.kind != 'sglang' || \
     self.kv.dtype in ['auto', 'bfloat16', 'fp8_e4m3', 'fp8_e5m2']",
    "engine.kind sglang keeps KV in bfloat16, fp8_e4m3 or fp8_e5m2: set kv.dtype to one of them, or \
     to auto for the model's",
)
.at(".kv.dtype");

pub const OTHERS_ARE_PLAIN: CelRule = CelRule::new(
    "self.engine.kind == 'pdserve' || self.security.peers == 'Plain'",
    "engine.kind sglang and vllm cannot authenticate peers: set security.peers to Plain, and keep \
     others from their ports by the network",
)
.at(".security.peers");

pub const OTHERS_KEEP_WEIGHTS: CelRule = CelRule::new(
    "self.engine.kind == 'pdserve' || !has(self.model.weights)",
    "engine.kind sglang and vllm are not asked to change weights: leave weights out, and change the source",
)
.at(".model");

pub const WEIGHTS_NAME_THEIR_VERSION: CelRule = CelRule::new(
    "!has(self.model.weights) || !((has(self.engine.args) && self.engine.args.exists(a, a.name == 'weight-version')) || \
     (has(self.pools.prefill.args) && self.pools.prefill.args.exists(a, a.name == 'weight-version')) || \
     (has(self.pools.decode.args) && self.pools.decode.args.exists(a, a.name == 'weight-version')))",
    "weights.version names the weights: leave the argument weight-version out",
)
.at(".model");

pub const VLLM_TRANSPORT: CelRule = CelRule::new(
    "self.engine.kind != 'vllm' || self.kv.transport in ['auto', 'nixl']",
    "engine.kind vllm moves KV by nixl: set kv.transport to that, or to auto",
)
.at(".kv.transport");

pub const VLLM_KV_DTYPE: CelRule = CelRule::new(
    "self.engine.kind != 'vllm' || self.kv.dtype != 'float32'",
    "engine.kind vllm keeps KV in float16, bfloat16, fp8_e4m3 or fp8_e5m2: set kv.dtype to one of them, \
     or to auto for the model's",
)
.at(".kv.dtype");

const VLLM_NODES: &str = "engine.kind vllm runs on one node per replica so far: set nodes to 1, or choose engine.kind sglang";

pub const VLLM_PREFILL_NODES: CelRule = CelRule::new(
    "self.engine.kind != 'vllm' || self.pools.prefill.nodes <= 1",
    VLLM_NODES,
)
.at(".pools.prefill");
pub const VLLM_DECODE_NODES: CelRule = CelRule::new(
    "self.engine.kind != 'vllm' || self.pools.decode.nodes <= 1",
    VLLM_NODES,
)
.at(".pools.decode");

pub(super) const ALL: [CelRule; 17] = [
    PREFILL_RANKS,
    DECODE_RANKS,
    PREFILL_GPUS,
    DECODE_GPUS,
    PDSERVE_DTYPE,
    PDSERVE_KV_DTYPE,
    PDSERVE_PAGE,
    SGLANG_TRANSPORT,
    SGLANG_KV_DTYPE,
    OTHERS_SHARE_NO_MEMORY,
    OTHERS_ARE_PLAIN,
    OTHERS_KEEP_WEIGHTS,
    WEIGHTS_NAME_THEIR_VERSION,
    VLLM_TRANSPORT,
    VLLM_KV_DTYPE,
    VLLM_PREFILL_NODES,
    VLLM_DECODE_NODES,
];
