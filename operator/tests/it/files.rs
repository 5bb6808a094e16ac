//! Files and addresses that cannot be run, and what is said of them.

use crate::bench::{Bench, pids};
use std::net::TcpListener;

const ONE_EACH: [&str; 3] = ["decode-0-1", "prefill-0-1", "router-0-1"];

#[tokio::test]
async fn an_invalid_edit_is_reported_and_changes_nothing() {
    let bench = Bench::new("file-edit");
    let mut operator = bench.start();
    let before = bench.wait_ready(&ONE_EACH).await;
    bench.write_pools("{prefil: {replicas: 2}}");
    operator.expect("changed, but what ran goes on");
    operator.expect("spec.pools.prefil: unknown field; did you mean prefill?");
    bench.write_pools("{decode: {podTemplate: {spec: {nodeSelector: {gpu: h100}}}}}");
    operator.expect("changed, but what ran goes on");
    operator.expect("spec.nodeSelector.gpu: is not carried out on this machine");
    let refused = bench
        .wait("refused", |status| status["file_error"].is_string())
        .await;
    assert_eq!(pids(&before), pids(&refused));
    bench.write_pools("{}");
    bench
        .wait("clean", |status| status["file_error"].is_null())
        .await;
}

#[tokio::test]
async fn a_deployment_keeps_its_name_while_it_runs() {
    let bench = Bench::new("file-name");
    let mut operator = bench.start();
    bench.wait_ready(&ONE_EACH).await;
    let text = std::fs::read_to_string(bench.path("d.yaml")).unwrap();
    bench.write(&text.replace("file-name", "file-other"));
    operator.expect("metadata.name and metadata.namespace stay as they are while it runs");
}

#[tokio::test]
async fn a_taken_port_is_named() {
    let bench = Bench::new("file-port");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let said = bench.refusal(&["--listen", &address]);
    let expected = format!("{address} is taken; stop what listens there");
    assert!(said.contains(&expected), "{said}");
}

#[tokio::test]
async fn a_missing_model_is_named() {
    let bench = Bench::new("file-model");
    std::fs::remove_file(bench.path("model.gguf")).unwrap();
    let said = bench.refusal(&[]);
    assert!(
        said.contains("spec.model.source.hostPath.path: no file or folder at"),
        "{said}"
    );
}

#[tokio::test]
async fn a_missing_program_is_named() {
    let bench = Bench::new("file-program");
    std::fs::remove_file(bench.path("pd-agent")).unwrap();
    let said = bench.refusal(&[]);
    assert!(
        said.contains("pd-agent is missing; build it with `cargo build -p pd-agent`"),
        "{said}"
    );
}

#[tokio::test]
async fn a_second_operator_of_the_same_deployment_is_refused() {
    let bench = Bench::new("file-twice");
    let _operator = bench.start();
    bench.wait_ready(&ONE_EACH).await;
    let said = bench.refusal(&["--listen", "127.0.0.1:0"]);
    assert!(
        said.contains("file-twice already runs on this machine"),
        "{said}"
    );
}

#[tokio::test]
async fn definitions_are_printed_as_they_are_committed() {
    let output = Bench::new("file-crds").command(&["crds"]).output().unwrap();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../crds/yaml/");
    let committed = ["pddeployments.yaml", "pdpools.yaml"]
        .map(|file| std::fs::read_to_string(format!("{folder}{file}")).unwrap());
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        committed.join("---\n")
    );
}
