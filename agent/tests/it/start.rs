//! Starts that fail say why.

use crate::agent::{Agent, command, tiny_model};
use std::net::TcpListener;
use std::process::Stdio;

async fn failed_start(args: &[&str]) -> (i32, String) {
    let output = command(args).output().await.unwrap();
    let status = output.status.code().expect("the agent exits");
    (status, String::from_utf8(output.stderr).unwrap())
}

#[tokio::test]
async fn broken_rules_end_the_start_with_every_message() {
    let args = ["--model-path", "m", "--tp", "2", "--page-size", "3"];
    let (status, log) = failed_start(&args).await;
    assert_eq!(status, 2);
    assert!(log.contains("--tp 2: this version runs one rank"), "{log}");
    assert!(log.contains("--page-size 3: use a power of two"), "{log}");
}

#[tokio::test]
async fn a_command_line_is_checked_without_a_start() {
    let good = ["--check", "--model-path", "/no/such/model", "--host", "::1"];
    let (status, log) = failed_start(&good).await;
    assert_eq!((status, log.as_str()), (0, ""));
    let (status, log) = failed_start(&["--check", "--model-path", "m", "--tp", "2"]).await;
    assert_eq!(status, 2);
    assert!(log.contains("--tp 2: this version runs one rank"), "{log}");
}

#[tokio::test]
async fn a_port_that_is_taken_is_named_with_its_flag() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let args = ["--model-path", "m", "--admin-port", "0", "--port", &port];
    let (status, log) = failed_start(&args).await;
    assert_eq!(status, 1);
    let message = format!("cannot listen on 127.0.0.1:{port}; choose another --port");
    assert!(log.contains(&message), "{log}");
    assert_eq!(log.matches("Address already in use").count(), 1, "{log}");
}

#[tokio::test]
async fn a_flag_that_only_tunes_starts_with_one_warning_that_names_it() {
    let tuning = ["--attention-backend", "triton", "--cuda-graph-bs", "1", "2"];
    let always = "--disaggregation-decode-enable-offload-kvcache";
    let agent = Agent::start(&[&tuning[..], &[always]].concat()).await;
    let log: Vec<&str> = agent.start_log.lines().collect();
    for (flag, level) in [(tuning[0], "WARN"), (tuning[2], "WARN"), (always, "INFO")] {
        let lines: Vec<_> = log.iter().filter(|line| line.contains(flag)).collect();
        assert_eq!(lines.len(), 1, "{flag}: {lines:?}");
        assert!(lines[0].contains(level), "{}", lines[0]);
    }
}

#[tokio::test]
async fn help_and_version_say_what_this_program_is() {
    let said = |flag| async move {
        let mut command = command(&[flag]);
        let output = command.stdout(Stdio::piped()).output().await.unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let version = said("--version").await;
    let kernels = [
        "(with CUDA kernels)",
        "(CPU only: built without CUDA kernels)",
    ];
    let known =
        kernels.map(|kernels| format!("pd-agent {} {kernels}\n", env!("CARGO_PKG_VERSION")));
    assert!(known.contains(&version), "{version}");
    let table = said("--help-sglang").await;
    assert!(
        table.contains("Refused: LoRA adapters are not applied"),
        "{table}"
    );
    assert!(said("--help").await.contains("--help-sglang"));
}

#[tokio::test]
async fn a_cpu_in_a_gpus_place_is_a_warning() {
    let given = [("NVIDIA_VISIBLE_DEVICES", "void")];
    let agent = Agent::start_with_env(&["--device", "auto"], &given).await;
    assert!(
        !agent.start_log.contains("was given a GPU"),
        "{}",
        agent.start_log
    );
    let given = [
        ("NVIDIA_VISIBLE_DEVICES", "all"),
        ("CUDA_VISIBLE_DEVICES", ""),
    ];
    let agent = Agent::start_with_env(&["--device", "auto"], &given).await;
    let mut log = agent.start_log.lines();
    let line = log.find(|line| line.contains("was given a GPU")).unwrap();
    assert!(line.contains("WARN"), "{line}");
}

#[tokio::test]
async fn the_sizes_that_were_chosen_are_one_line() {
    let agent = Agent::start(&[]).await;
    let sizes = "KV pool of 8192 tokens, prompts in chunks of 512, 32 requests at once";
    assert!(agent.start_log.contains(sizes), "{}", agent.start_log);
    let given = [
        "--chunked-prefill-size",
        "-1",
        "--max-running-requests",
        "3",
    ];
    let agent = Agent::start(&given).await;
    assert!(
        agent
            .start_log
            .contains("prompts in one piece, 3 requests at once")
    );
}

#[tokio::test]
async fn a_host_may_be_a_name_or_an_ipv6_address() {
    let agent = Agent::start(&["--host", "localhost"]).await;
    assert!(
        agent.http.starts_with("http://127.0.0.1:"),
        "{}",
        agent.http
    );
    let args = ["--model-path", "m", "--port", "0", "--host", "[::1]"];
    if TcpListener::bind("[::1]:0").is_err() {
        let (_, log) = failed_start(&args).await;
        assert!(
            log.contains("cannot listen on [::1]:0; choose another --port"),
            "{log}"
        );
        return;
    }
    let agent = Agent::start(&args[4..]).await;
    assert!(agent.http.starts_with("http://[::1]:"), "{}", agent.http);
    assert_eq!(agent.client.get(&agent.url("/health")).await.status, 200);
}

#[tokio::test]
async fn a_model_that_is_not_there_is_named() {
    let args = ["--model-path", "/no/such/model", "--port", "0"];
    let (status, log) = failed_start(&args).await;
    assert_eq!(status, 1);
    assert!(log.contains("/no/such/model"), "{log}");
}

#[tokio::test]
async fn a_secret_is_not_in_the_log() {
    let env = [("PDSERVE_API_KEY", "hush-hush")];
    let args = [
        "--model-path",
        "/no/such/model",
        "--port",
        "0",
        "--log-level",
        "trace",
    ];
    let output = command(&args).envs(env).output().await.unwrap();
    assert!(!String::from_utf8_lossy(&output.stderr).contains("hush-hush"));
}

#[tokio::test]
async fn a_ready_agent_says_what_it_is() {
    let agent = Agent::start(&[]).await;
    assert_eq!(agent.client.get(&agent.url("/health")).await.status, 200);
    assert_eq!(
        agent
            .client
            .get(&agent.url("/health_generate"))
            .await
            .status,
        200
    );
    let info = agent.client.get(&agent.url("/server_info")).await.ok();
    assert_eq!(info["served_model_name"], "tiny");
    assert_eq!(info["disaggregation_mode"], "null");
    assert!(!info["kv_compat"].as_str().unwrap().is_empty());
    assert!(!info["boot_id"].as_str().unwrap().is_empty());
    let model = agent.client.get(&agent.url("/get_model_info")).await.ok();
    assert_eq!(model["model_path"], tiny_model().to_str().unwrap());
    assert_eq!(model["is_generation"], true);
    let models = agent.client.get(&agent.url("/v1/models")).await.ok();
    assert_eq!(models["data"][0]["id"], "tiny");
    let one = agent.client.get(&agent.url("/v1/models/tiny")).await.ok();
    assert_eq!(one["object"], "model");
    assert_eq!(
        agent
            .client
            .get(&agent.url("/v1/models/other"))
            .await
            .status,
        404
    );
    let metrics = agent.client.get(&agent.url("/metrics")).await;
    let text = String::from_utf8(metrics.body.to_vec()).unwrap();
    let line = r#"pdserve_http_responses_total{route="/v1/models/{*name}",status="404"} 1"#;
    assert!(text.contains(line), "{text}");
}
