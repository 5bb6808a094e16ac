//! pd-agent.

use super::{Asks, Check, Engine, Meeting, Probes, SGLANG_NAMES, TakesKey, Worker};
use crate::controller::build::args::Args;
use crate::controller::build::{devices, neighbours, peers};
use pd_protocol::ports;

/// The flag that says what computes.
const DEVICE: &str = "device";

pub(super) const ENGINE: Engine = Engine {
    command: &["pd-agent"],
    names: SGLANG_NAMES,
    add_flags,
    env: &[],
    probes: Probes {
        // Half an hour for large weights.
        startup: health(1, 1, 1800),
        readiness: health(2, 2, 3),
        liveness: health(10, 5, 6),
    },
    meeting: Meeting::Bootstrap,
    is_confined: true,
    shares_memory: false,
    takes_key: TakesKey::No,
    sends_spans: true,
    has_admin_api: true,
    names_kv_compat: true,
};

const fn health(period_seconds: i32, timeout_seconds: i32, failures: i32) -> Check {
    Check {
        asks: Asks::Path("/health"),
        period_seconds,
        timeout_seconds,
        failures,
    }
}

fn add_flags(args: &mut Args, worker: &Worker<'_>) {
    let Worker {
        spec, pool, config, ..
    } = *worker;
    worker.add_disaggregation(args);
    args.flag("admin-port", ports::ADMIN.to_string());
    args.flag("drain-timeout-secs", spec.drain.timeout_seconds.to_string());
    peers::add_flag(args, spec, config);
    args.flag("disaggregation-transfer-backend", spec.kv.transport.flag());
    if config.site.shared_memory.is_some() && spec.kv.node_shared_memory {
        args.flag("disaggregation-shm-dir", neighbours::MOUNT);
    }
    // A GPU that was asked for is used, or the worker says why it cannot: with `auto` it would serve on
    // CPUs. Without one `auto` stays, since some runtimes give GPUs to pods that ask for none.
    if devices::has_cuda(pool) && !worker.has_arg(DEVICE) {
        args.flag(DEVICE, "cuda");
    }
}
