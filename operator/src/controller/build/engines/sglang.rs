//! SGLang's server. Source: SGLang 0.5.23, `srt/server_args.py` and `srt/entrypoints/http_server.py`.

use super::{Asks, Check, Engine, Probes};
use crate::controller::build::args::Args;
use crate::controller::build::config::BuildConfig;
use pd_crds::PdDeploymentSpec;
use pd_crds::kv::KvTransport;
use pd_crds::pool::PoolSpec;

/// Without it there is no `/metrics`.
const METRICS: &str = "enable-metrics";

pub(super) const ENGINE: Engine = Engine {
    command: &["python3", "-m", "sglang.launch_server"],
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
    // Its published images run as root, and write next to their files.
    is_confined: false,
    shares_memory: true,
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

fn add_flags(args: &mut Args, spec: &PdDeploymentSpec, pool: &PoolSpec, _config: &BuildConfig) {
    if spec.kv.transport != KvTransport::Auto {
        args.flag("disaggregation-transfer-backend", spec.kv.transport.flag());
    }
    let mut given = spec.engine.args.iter().chain(&pool.args);
    if given.all(|arg| arg.name != METRICS) {
        args.switch(METRICS);
    }
}
