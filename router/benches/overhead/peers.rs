//! Other routers for prefill and decode, where a Python environment has them. One that is not
//! there, or does not serve, is named and left out.

use crate::target::{Target, free_port, on_core_0};
use crate::worker::Worker;
use std::path::Path;

/// Package, the module that starts it, and its flag for a prefill and a decode pool.
const PEERS: [(&str, &str, &str); 3] = [
    (
        "sglang-router",
        "sglang_router.launch_router",
        "--pd-disaggregation",
    ),
    ("smg", "smg.launch_router", "--pd-disaggregation"),
    (
        "vllm-router",
        "vllm_router.launch_router",
        "--vllm-pd-disaggregation",
    ),
];

/// Port of a bootstrap server that the mock prefill workers do not have; no peer dials it.
const BOOTSTRAP_PORT: &str = "8998";

pub(crate) async fn start(venv: &Path, workers: &[Worker]) -> Vec<Target> {
    let python = venv.join("bin/python");
    let mut started = Vec::new();
    for (name, module, flag) in PEERS {
        let mut command = on_core_0(&python.to_string_lossy());
        command.args(["-m", module, flag, "--log-level", "error"]);
        command.args(["--prometheus-port", &free_port().await.to_string()]);
        for worker in workers {
            command.args([
                format!("--{}", worker.role),
                format!("http://{}", worker.addr),
            ]);
            if worker.role == "prefill" {
                command.arg(BOOTSTRAP_PORT);
            }
        }
        match Target::start(name, command).await {
            Ok(target) => started.push(target),
            Err(reason) => println!("{name} is left out: {reason}"),
        }
    }
    started
}
