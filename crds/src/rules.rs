//! The rules that tie fields together, each with its CEL form for the apiserver and the message
//! that both the apiserver and [`validate`](mod@crate::validate) give.

pub mod engines;

use kube::core::Rule;

/// A rule in CEL, and what a user reads who breaks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CelRule {
    pub expression: &'static str,
    pub message: &'static str,
    /// The field that the message is about, from where the rule is attached; empty for that itself.
    pub field: &'static str,
}

// === impl CelRule ===

impl CelRule {
    const fn new(expression: &'static str, message: &'static str) -> Self {
        Self {
            expression,
            message,
            field: "",
        }
    }

    const fn at(self, field: &'static str) -> Self {
        Self { field, ..self }
    }

    /// The rule as the schema carries it.
    pub fn cel(self) -> Rule {
        let rule = Rule::new(self.expression).message(self.message);
        match self.field {
            "" => rule,
            field => rule.field_path(field),
        }
    }
}

/// Longest name of a `PDDeployment`: `-prefill-NNN-NNN…` must still fit a 63 character label.
pub const NAME_LEN_MAX: usize = 40;

/// Flags that the operator derives from the spec, under each of their names, and `config`, a file of others.
pub const RESERVED_ARGS: [&str; 36] = [
    "model",
    "model-path",
    "revision",
    "served-model-name",
    "host",
    "port",
    "admin-port",
    "api-key",
    "admin-token",
    "tp",
    "pp",
    "dp",
    "tp-size",
    "pp-size",
    "dp-size",
    "tensor-parallel-size",
    "pipeline-parallel-size",
    "data-parallel-size",
    "nnodes",
    "node-rank",
    "dist-init-addr",
    "nccl-init-addr",
    "master-addr",
    "master-port",
    "disaggregation-mode",
    "disaggregation-bootstrap-port",
    "disaggregation-transfer-backend",
    "disaggregation-shm-dir",
    "peer-key-file",
    "kv-transfer-config",
    "page-size",
    "block-size",
    "kv-cache-dtype",
    "drain-timeout-secs",
    "shutdown-timeout",
    "config",
];

/// Whether a name stands for a reserved flag: Python's `argparse` takes the beginning of a flag for the flag.
pub fn is_reserved_arg(name: &str) -> bool {
    RESERVED_ARGS
        .iter()
        .any(|reserved| reserved.starts_with(name))
}

pub const NAME: CelRule = CelRule::new(
    "self.metadata.name.matches('^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$')",
    "metadata.name must be 1 to 40 lower case letters, digits and dashes, begin with a letter and \
     end with a letter or digit, because it becomes part of the names of pods and services",
);

pub const ONE_SOURCE: CelRule = CelRule::new(
    "[has(self.hostPath), has(self.pvc), has(self.huggingFace), has(self.image)].filter(x, x)\
     .size() == 1",
    "give exactly one of hostPath, pvc, huggingFace and image",
);

pub const WEIGHTS_LIE_IN_A_FOLDER: CelRule = CelRule::new(
    "!has(self.weights) || has(self.source.hostPath) || has(self.source.pvc)",
    "weights are changed on workers whose source is a hostPath or a pvc: give one of these, or leave weights out",
);

pub const WEIGHTS_STAY_INSIDE: CelRule = CelRule::new(
    "!self.path.split('/').exists(part, part == '.' || part == '..')",
    "path names a folder or file inside the source: leave out . and ..",
);

pub const ONE_CACHE: CelRule = CelRule::new(
    "has(self.pvc) != has(self.hostPath)",
    "give exactly one of pvc and hostPath",
);

pub const KUEUE_NEEDS_QUEUE: CelRule = CelRule::new(
    "has(self.queue) == (has(self.gang) && self.gang == 'Kueue')",
    "queue names Kueue's LocalQueue: give it with gang Kueue, and only then",
);

pub const COLLECTOR: CelRule = CelRule::new(
    r"self.otlpEndpoint.matches('^http://([a-zA-Z0-9._-]+|\\[[a-fA-F0-9:.]+\\])(:[0-9]{1,5})?(/[a-zA-Z0-9._~/-]*)?$')",
    "must be a plain HTTP URL, such as http://otel-collector:4318: spans are sent by OTLP over HTTP without TLS",
)
.at(".otlpEndpoint");

pub const OTHERS_NEED_IMAGE: CelRule = CelRule::new(
    "self.kind == 'pdserve' || has(self.image)",
    "engine.kind sglang and vllm need an image, such as lmsysorg/sglang or vllm/vllm-openai with a tag",
);

pub const ARG_NOT_RESERVED: CelRule = CelRule::new(
    "!['model', 'model-path', 'revision', 'served-model-name', 'host', 'port', \
     'admin-port', 'api-key', 'admin-token', 'tp', 'pp', 'dp', 'tp-size', 'pp-size', 'dp-size', \
     'tensor-parallel-size', 'pipeline-parallel-size', 'data-parallel-size', 'nnodes', \
     'node-rank', 'dist-init-addr', 'nccl-init-addr', 'master-addr', 'master-port', 'disaggregation-mode', \
     'disaggregation-bootstrap-port', 'disaggregation-transfer-backend', \
     'disaggregation-shm-dir', 'peer-key-file', 'kv-transfer-config', 'page-size', 'block-size', \
     'kv-cache-dtype', 'drain-timeout-secs', 'shutdown-timeout', \
     'config'].exists(reserved, reserved.startsWith(self))",
    "the operator sets this flag, or one whose beginning this is, from other fields of the spec (model, \
     pools, kv, security, drain); set it there",
);

pub const FIXED_OR_BOUNDS: CelRule = CelRule::new(
    "!has(self.replicas) || !(has(self.minReplicas) || has(self.maxReplicas))",
    "give either replicas, or minReplicas and maxReplicas, not both",
);

pub const BOUNDS_TOGETHER: CelRule = CelRule::new(
    "has(self.minReplicas) == has(self.maxReplicas)",
    "minReplicas and maxReplicas must be given together",
);

pub const MIN_BELOW_MAX: CelRule = CelRule::new(
    "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
    "minReplicas must not exceed maxReplicas",
);

pub const RANKS_FILL_NODES: CelRule = CelRule::new(
    "self.tp * self.pp * self.dp % self.nodes == 0",
    "the ranks of a replica (tp × pp × dp) must be a multiple of nodes, so that each node has as many",
);

pub const BOTH_POOLS_OR_NONE: CelRule = CelRule::new(
    "(has(self.pools.prefill.replicas) && self.pools.prefill.replicas == 0) == \
     (has(self.pools.decode.replicas) && self.pools.decode.replicas == 0)",
    "pools.prefill.replicas and pools.decode.replicas must both be 0 or both be at least 1: one \
     pool serves nothing without the other",
);

pub const AUTOSCALING_NEEDS_BOUNDS: CelRule = CelRule::new(
    "!(self.autoscaling.mode in ['Auto', 'Advise']) || \
     (has(self.pools.prefill.maxReplicas) && has(self.pools.decode.maxReplicas))",
    "autoscaling.mode Auto and Advise need minReplicas and maxReplicas in both pools",
);

pub const BUDGET_COVERS_MINIMUM: CelRule = CelRule::new(
    "!has(self.autoscaling.budget.maxGpus) || \
     (has(self.pools.prefill.replicas) ? self.pools.prefill.replicas : \
     (has(self.pools.prefill.minReplicas) ? self.pools.prefill.minReplicas : 1)) * \
     (has(self.pools.prefill.resources) && has(self.pools.prefill.resources.limits) && \
     'nvidia.com/gpu' in self.pools.prefill.resources.limits && \
     string(self.pools.prefill.resources.limits['nvidia.com/gpu']).matches('^[0-9]{1,9}$') ? \
     int(string(self.pools.prefill.resources.limits['nvidia.com/gpu'])) * self.pools.prefill.nodes : \
     self.pools.prefill.tp * self.pools.prefill.pp * self.pools.prefill.dp) + \
     (has(self.pools.decode.replicas) ? self.pools.decode.replicas : \
     (has(self.pools.decode.minReplicas) ? self.pools.decode.minReplicas : 1)) * \
     (has(self.pools.decode.resources) && has(self.pools.decode.resources.limits) && \
     'nvidia.com/gpu' in self.pools.decode.resources.limits && \
     string(self.pools.decode.resources.limits['nvidia.com/gpu']).matches('^[0-9]{1,9}$') ? \
     int(string(self.pools.decode.resources.limits['nvidia.com/gpu'])) * self.pools.decode.nodes : \
     self.pools.decode.tp * self.pools.decode.pp * self.pools.decode.dp) <= \
     self.autoscaling.budget.maxGpus",
    "autoscaling.budget.maxGpus is below what the least replicas of both pools need \
     (replicas × the GPUs of one)",
);

pub const ROLLOUT_CAN_MOVE: CelRule = CelRule::new(
    "self.maxSurge + self.maxUnavailable > 0",
    "maxSurge and maxUnavailable must not both be 0: no worker could be replaced",
);

pub const SECRET_NAME: CelRule = CelRule::new(
    "self.secretName.matches('^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$')",
    "secretName must be the name of a Secret of this namespace: lower case letters, digits, dashes \
     and dots, with a letter or digit at both ends",
);

pub const KEYS_ARE_NOT_THE_CERTIFICATE: CelRule = CelRule::new(
    "!has(self.apiKeys) || !has(self.tls) || self.apiKeys.secretName != self.tls.secretName",
    "apiKeys and tls must name two Secrets: every entry of the first is a key that opens the API",
);

pub const METRICS_PORT_IS_FREE: CelRule = CelRule::new(
    "!has(self.tls) || self.port != 29000",
    "with tls, port must not be 29000, where the router then exposes its metrics in plain HTTP",
);

pub const CLASS_NEEDS_LOAD_BALANCER: CelRule = CelRule::new(
    "!has(self.loadBalancerClass) || self.type == 'LoadBalancer'",
    "loadBalancerClass chooses among load balancers: set type to LoadBalancer, or leave it out",
);

pub const SERVICE_NAMES_ARE_NOT_OURS: CelRule = CelRule::new(
    "(!has(self.labels) || self.labels.all(name, !name.startsWith('pdserve.io/'))) && \
     (!has(self.annotations) || \
     self.annotations.all(name, !name.startsWith('pdserve.io/')))",
    "labels and annotations below pdserve.io/ are the operator's own: choose another prefix",
);

pub const SHARING_NEEDS_SHARED_MEMORY: CelRule = CelRule::new(
    "!has(self.nodeSharedMemory) || !self.nodeSharedMemory || \
     self.transport in ['auto', 'shm']",
    "nodeSharedMemory is for shared memory: set kv.transport to auto or shm, or leave it out",
);

/// Every rule, for tests that each is in the schema and each is broken by a case.
pub fn all() -> impl Iterator<Item = CelRule> {
    BETWEEN_FIELDS.into_iter().chain(engines::ALL)
}

const BETWEEN_FIELDS: [CelRule; 23] = [
    NAME,
    ONE_SOURCE,
    WEIGHTS_LIE_IN_A_FOLDER,
    WEIGHTS_STAY_INSIDE,
    ONE_CACHE,
    KUEUE_NEEDS_QUEUE,
    COLLECTOR,
    OTHERS_NEED_IMAGE,
    ARG_NOT_RESERVED,
    FIXED_OR_BOUNDS,
    BOUNDS_TOGETHER,
    MIN_BELOW_MAX,
    RANKS_FILL_NODES,
    BOTH_POOLS_OR_NONE,
    AUTOSCALING_NEEDS_BOUNDS,
    BUDGET_COVERS_MINIMUM,
    ROLLOUT_CAN_MOVE,
    SECRET_NAME,
    KEYS_ARE_NOT_THE_CERTIFICATE,
    METRICS_PORT_IS_FREE,
    CLASS_NEEDS_LOAD_BALANCER,
    SERVICE_NAMES_ARE_NOT_OURS,
    SHARING_NEEDS_SHARED_MEMORY,
];
