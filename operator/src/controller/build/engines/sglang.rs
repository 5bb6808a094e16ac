//! SGLang's server. Source: SGLang 0.5.23, `srt/server_args.py` and `srt/entrypoints/http_server.py`.

use super::{Asks, Check, Engine, Meeting, Probes, SGLANG_NAMES, TakesKey, Worker};
use crate::controller::build::args::Args;
use crate::controller::build::worker_key;
use pd_crds::kv::KvTransport;

/// Without it there is no `/metrics`.
const METRICS: &str = "enable-metrics";
/// Asked for by everything but its health and metrics.
const KEY: &str = "api-key";

pub(super) const ENGINE: Engine = Engine {
    command: &["python3", "-m", "sglang.launch_server"],
    names: SGLANG_NAMES,
    add_flags,
    env: &[
        // `/health` would generate a token, and wait behind long prompts for the scheduler.
        ("SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION", "false"),
    ],
    probes: Probes {
        // Two hours: weights over a network, then the kernels' compilation.
        startup: health(5, 1440),
        readiness: health(5, 3),
        // A server whose scheduler hangs ends itself (its watchdog); one that is busy must not be ended.
        liveness: Check {
            asks: Asks::Port,
            period_seconds: 10,
            timeout_seconds: 5,
            failures: 6,
        },
    },
    meeting: Meeting::Bootstrap,
    // Its published images run as root, and write next to their files.
    is_confined: false,
    shares_memory: true,
    takes_key: TakesKey::Flag(KEY),
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
    worker.add_disaggregation(args);
    let transport = worker.spec.kv.transport;
    if transport != KvTransport::Auto {
        args.flag("disaggregation-transfer-backend", transport.flag());
    }
    args.flag(KEY, worker_key::flag_value());
    if !worker.has_arg(METRICS) {
        args.switch(METRICS);
    }
}
