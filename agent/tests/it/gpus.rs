//! GPU metrics of an agent with a fake driver library, and of one that sees no GPU.

use crate::agent::Agent;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tokio::time::timeout;

/// Folder with a driver's library, built by the C compiler that links Rust programs.
fn driver() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("driver");
    std::fs::create_dir_all(&folder).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/gpus/nvml.c");
    // Tests run at the same time: each builds its own and puts it into place at once.
    let built = tempfile::NamedTempFile::new_in(&folder).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"]);
    let status = compiler.arg(built.path()).arg(source).status();
    assert!(status.expect("cc links Rust programs, too").success());
    built.persist(folder.join("libnvidia-ml.so.1")).unwrap();
    folder
}

async fn metrics(agent: &Agent) -> String {
    let answer = agent.client.get(&agent.url("/metrics")).await;
    String::from_utf8(answer.body.to_vec()).unwrap()
}

/// The GPU series that an agent exports, once it has any.
async fn series_with(env: &[(&str, &str)]) -> Vec<String> {
    let folder = driver();
    let library_path = ("LD_LIBRARY_PATH", folder.to_str().unwrap());
    let here = [library_path, ("NODE_NAME", "n"), ("POD_NAME", "p")];
    let env: Vec<(&str, &str)> = here.into_iter().chain(env.iter().copied()).collect();
    let agent = Agent::start_with_env(&[], &env).await;
    let scraped = async {
        loop {
            let text = metrics(&agent).await;
            if text.contains("pdserve_gpu_degraded{") {
                return text;
            }
            tokio::task::yield_now().await;
        }
    };
    let text = timeout(Duration::from_secs(10), scraped).await;
    let text = text.expect("GPUs are read within a second");
    let ours = |line: &&str| line.starts_with("DCGM_") || line.starts_with("pdserve_gpu_");
    text.lines().filter(ours).map(str::to_owned).collect()
}

/// The value of the series with this name and these parts of its labels.
fn value(series: &[String], name: &str, labels: &[&str]) -> Option<f64> {
    let mut found = series.iter().filter(|line| {
        let (of, rest) = line.split_once('{').unwrap();
        of == name && labels.iter().all(|label| rest.contains(label))
    });
    let line = found.next()?;
    assert_eq!(found.next(), None, "{name} is exported twice");
    line.rsplit_once(' ')?.1.parse().ok()
}

#[tokio::test]
async fn gpus_are_read_from_the_drivers_library() {
    let series = series_with(&[]).await;
    let of = |name: &str| value(&series, name, &["gpu=\"0\""]);
    assert_eq!(of("DCGM_FI_DEV_GPU_UTIL"), Some(37.0), "{series:#?}");
    assert_eq!(of("DCGM_FI_DEV_FB_USED"), Some(31.0 * 1024.0));
    assert_eq!(of("DCGM_FI_DEV_POWER_USAGE"), Some(312.5));
    assert_eq!(of("DCGM_FI_DEV_SM_CLOCK"), Some(1980.0));
    assert_eq!(of("DCGM_FI_DEV_CLOCKS_EVENT_REASONS"), Some(4.0));
    assert_eq!(of("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"), Some(2.0));
    assert_eq!(of("DCGM_FI_DEV_XID_ERRORS"), Some(43.0));
    let replays = of("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL");
    assert_eq!(replays, Some(3.0), "of both links");
    let labels = [
        "UUID=\"GPU-00000001\"",
        "pci_bus_id=\"00000000:01:00.0\"",
        "device=\"nvidia7\"",
        "modelName=\"New One\"",
        "Hostname=\"n\"",
        "pod=\"p\"",
    ];
    let labelled = value(&series, "DCGM_FI_DEV_GPU_TEMP", &labels);
    assert_eq!(labelled, Some(61.0), "{series:#?}");
}

#[tokio::test]
async fn what_a_gpu_lacks_is_absent_and_its_faults_are_exported() {
    let series = series_with(&[]).await;
    let hot = |name: &str| value(&series, name, &["gpu=\"1\""]);
    assert_eq!(hot("DCGM_FI_DEV_GPU_TEMP"), Some(93.0), "{series:#?}");
    for absent in [
        "DCGM_FI_DEV_GPU_UTIL",
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
        "DCGM_FI_DEV_XID_ERRORS",
        "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
    ] {
        assert_eq!(hot(absent), None, "{series:#?}");
    }
    let degraded = |gpu: u32, reason: &str| {
        let labels = [format!("gpu=\"{gpu}\""), format!("reason=\"{reason}\"")];
        value(
            &series,
            "pdserve_gpu_degraded",
            &labels.each_ref().map(String::as_str),
        )
    };
    assert_eq!(degraded(0, "hw_thermal"), Some(0.0));
    assert_eq!(degraded(0, "fatal_xid"), Some(0.0), "43 is the program's");
    assert_eq!(degraded(1, "hw_thermal"), Some(1.0));
    assert_eq!(degraded(1, "double_bit_ecc"), None);
    assert_eq!(degraded(2, "lost"), Some(1.0));
    assert_eq!(value(&series, "DCGM_FI_DEV_GPU_TEMP", &["gpu=\"2\""]), None);
}

#[tokio::test]
async fn only_gpus_of_this_process_are_exported() {
    let series = series_with(&[("CUDA_VISIBLE_DEVICES", "GPU-00000002")]).await;
    assert!(
        series.iter().all(|line| line.contains("gpu=\"1\"")),
        "{series:#?}"
    );
}

#[tokio::test]
async fn an_agent_that_sees_no_gpu_serves_without_these_metrics() {
    let agent = Agent::start_with_env(&[], &[("CUDA_VISIBLE_DEVICES", "")]).await;
    let text = metrics(&agent).await;
    assert!(text.contains("pdserve_num_requests_total 0"), "{text}");
    assert!(!text.contains("DCGM_") && !text.contains("pdserve_gpu_"));
}
