//! Labels, annotations, headers and environment variables by which the parts find each other.

use std::collections::BTreeMap;

/// API group of the custom resources.
pub const GROUP: &str = "pdserve.io";

/// Name of the `PDDeployment` that an object belongs to.
pub const DEPLOYMENT: &str = "pdserve.io/deployment";
/// `true` on objects that the deployments of a namespace share; none of them owns one.
pub const SHARED: &str = "pdserve.io/shared";
/// Kubernetes' label that names the program which keeps an object, and our operator's value of it.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "pd-operator");
/// `prefill`, `decode` or `router`.
pub const ROLE: &str = "pdserve.io/role";
/// Hash of the user's spec that a pod was built from.
pub const REVISION: &str = "pdserve.io/revision";
/// On pods that leave: when the operator asked them to, in RFC 3339. Routers send them nothing new.
pub const LEAVING_SINCE: &str = "pdserve.io/leaving-since";
/// Label of pods that leave, because selectors cannot match annotations.
pub const LEAVING: &str = "pdserve.io/leaving";
/// On the newest record of a deployment's revisions: the whole spec that was last valid, as JSON.
pub const ACCEPTED_SPEC: &str = "pdserve.io/accepted-spec";
/// On a routers' Deployment: digest of the pod template as the operator made it that wrote it.
pub const TEMPLATE: &str = "pdserve.io/template";
/// On an admin Secret that was made while workers ran: since when its token holds, in RFC 3339.
pub const TOKEN_SINCE: &str = "pdserve.io/token-since";
/// On a `PDDeployment`: a value that was not there before, such as a date, has its peer keys replaced.
pub const ROTATE_PEER_KEYS: &str = "pdserve.io/rotate-peer-keys";
/// On a peer Secret: that value, once it was carried out.
pub const PEER_KEYS_ROTATED: &str = "pdserve.io/peer-keys-rotated";
/// On a peer Secret: the rotation that is under way, as JSON.
pub const PEER_KEYS_ROTATING: &str = "pdserve.io/peer-keys-rotating";
/// Readiness gate of workers: latches once every ready router sends to it, and its KV probe passed.
pub const ROUTABLE_GATE: &str = "pdserve.io/routable";
/// Finalizer of a `PDDeployment`: its workers drain before it goes.
pub const FINALIZER: &str = "pdserve.io/drain";
/// On prefill pods: the port of the bootstrap server.
pub const BOOTSTRAP_PORT: &str = "pdserve.io/bootstrap-port";
/// On workers: scheme of their HTTP API's URL, `http` or `https`.
pub const SCHEME: &str = "pdserve.io/scheme";
/// On workers whose engine does not say what its KV means: a digest of the spec that decides it.
pub const KV_COMPAT: &str = "pdserve.io/kv-compat";
/// On workers that share their node's network: the first port of their own block.
pub const FIRST_PORT: &str = "pdserve.io/first-port";
/// On workers: 0 is the leader of its replica, which speaks for it; of several nodes, or of its own.
pub const NODE_RANK: &str = "pdserve.io/node-rank";
/// On such a leader: how many nodes its replica spans.
pub const NODES: &str = "pdserve.io/nodes";
/// On workers: name of the leader of its replica, which is its own where it is alone.
pub const REPLICA: &str = "pdserve.io/replica";
/// Annotation on workers that were made for weights which are changed while they run.
pub const TAKES_WEIGHTS: &str = "pdserve.io/takes-weights";
/// `true` on workers whose HTTP API asks for the deployment's worker key.
pub const ASKS_FOR_KEY: &str = "pdserve.io/asks-for-key";
/// `true` on workers that do not know their peers: a network policy of their deployment's own says who reaches them.
pub const OWN_POLICY: &str = "pdserve.io/own-policy";
/// On workers of a gang: its name, which is that of the PodGroup where a scheduler places gangs.
pub const GANG: &str = "pdserve.io/gang";
/// On workers of a gang: how many pods it has.
pub const GANG_SIZE: &str = "pdserve.io/gang-size";
/// On workers that Kueue queues: revision of both pools together for which their gang asks for quota.
pub const GANG_SHAPES: &str = "pdserve.io/gang-shapes";
/// `true` on workers of a gang that had all of its nodes once.
pub const GANG_WHOLE: &str = "pdserve.io/gang-whole";
/// `true` on workers whose replica has its topology domain to itself.
pub const EXCLUSIVE: &str = "pdserve.io/exclusive";
/// On such a leader: digest of which pods its replica had when it was admitted, and how often each was
/// restarted before.
pub const MEMBERS: &str = "pdserve.io/members";

/// Request and response header that names a request across processes.
pub const HEADER_REQUEST_ID: &str = "x-request-id";
/// Response header of the router: the room it drew (first of `n`).
pub const HEADER_ROOM: &str = "x-pdserve-room";
/// Response headers of the router: the workers that served the request.
pub const HEADER_PREFILL: &str = "x-pdserve-prefill";
pub const HEADER_DECODE: &str = "x-pdserve-decode";
/// Boot id of a process, sent with bootstrap replies and registrations, so that a restart on the
/// same address is never taken for its predecessor.
pub const HEADER_BOOT_ID: &str = "x-pdserve-boot-id";
/// Digest of all that must be equal for KV bytes to mean the same.
pub const HEADER_KV_COMPAT: &str = "x-pdserve-kv-compat";

/// Environment variable with the bearer token of the HTTP API, of routers and of agents.
pub const ENV_API_KEY: &str = "PDSERVE_API_KEY";
/// Environment variable with the bearer token that routers present to workers.
pub const ENV_WORKER_API_KEY: &str = "PDSERVE_WORKER_API_KEY";
/// Environment variable with the bearer token of the admin API. Unset: loopback callers only.
pub const ENV_ADMIN_TOKEN: &str = "PDSERVE_ADMIN_TOKEN";
/// OpenTelemetry's: the collector that spans go to.
pub const ENV_TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
/// OpenTelemetry's: which requests are traced that no client decided on, and the part of them.
pub const ENV_TRACES_SAMPLER: &str = "OTEL_TRACES_SAMPLER";
pub const ENV_TRACES_SAMPLER_ARG: &str = "OTEL_TRACES_SAMPLER_ARG";
/// Probability in 0..=1 that a poll of a transfer fails on purpose. Source: docs/sglang-protocol.md#fake-transfers.
pub const ENV_TEST_FAILURE_PROB: &str = "DISAGGREGATION_TEST_FAILURE_PROB";

/// Whether a pod of these labels is a further node of a replica, which its leader speaks for.
pub fn is_follower(labels: &BTreeMap<String, String>) -> bool {
    labels.get(NODE_RANK).is_some_and(|rank| rank != "0")
}
