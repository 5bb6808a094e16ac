//! Starts that fail say why.

use crate::agent::{Agent, command, tiny_model};
use std::net::TcpListener;

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
    assert!(
        log.contains("--tp-size 2: this version runs one rank"),
        "{log}"
    );
    assert!(log.contains("--page-size 3: use a power of two"), "{log}");
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
