//! vLLM's OpenAI server, with KV over NIXL. Source: vLLM 0.32, `entrypoints/launchers/cli_args.py`, `envs.py` and
//! `distributed/kv_transfer/kv_connector/v1/nixl`.

use super::{Asks, Check, Engine, FlagNames, Meeting, Probes, TakesKey, Worker};
use crate::controller::build::args::Args;
use crate::controller::build::pod::POD_IP_ARG;
use pd_crds::PoolRole;
use serde_json::json;

pub(super) const ENGINE: Engine = Engine {
    command: &["python3", "-m", "vllm.entrypoints.openai.api_server"],
    names: FlagNames {
        model: "model",
        page_size: "block-size",
        tp: "tensor-parallel-size",
        pp: "pipeline-parallel-size",
        dp: "data-parallel-size",
    },
    add_flags,
    // Its default is a name that every pod takes for itself.
    env: &[("VLLM_NIXL_SIDE_CHANNEL_HOST", POD_IP_ARG)],
    probes: Probes {
        // Two hours: weights over a network, then the kernels' compilation.
        startup: health(5, 1440),
        readiness: health(5, 3),
        // Answered by the server's process also while the engine's computes; it fails once that is dead.
        liveness: health(10, 6),
    },
    meeting: Meeting::SideChannel {
        variable: "VLLM_NIXL_SIDE_CHANNEL_PORT",
        port: 5600,
    },
    // Its published images run as root, and write next to their files.
    is_confined: false,
    shares_memory: true,
    // Asked for by what is under `/v1`. As a flag it would stand in its log.
    takes_key: TakesKey::Variable("VLLM_API_KEY"),
    sends_spans: false,
    has_admin_api: false,
    names_kv_compat: false,
};

const fn health(period_seconds: i32, failures: i32) -> Check {
    Check {
        asks: Asks::Path("/health"),
        period_seconds,
        timeout_seconds: 10,
        failures,
    }
}

fn add_flags(args: &mut Args, worker: &Worker<'_>) {
    let role = match worker.role {
        PoolRole::Prefill => "kv_producer",
        PoolRole::Decode => "kv_consumer",
    };
    // Decode computes no prompt itself where its KV does not come: the request fails, and is tried again elsewhere.
    let transfer = json!({
        "kv_connector": "NixlConnector",
        "kv_load_failure_policy": "fail",
        "kv_role": role,
    });
    args.flag("kv-transfer-config", transfer.to_string());
    // Asked to end, it cuts what runs by default.
    let drain = worker.spec.drain.timeout_seconds;
    args.flag("shutdown-timeout", drain.to_string());
}
