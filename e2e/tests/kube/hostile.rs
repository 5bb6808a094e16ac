//! Specs that are valid and cannot be carried out, and clusters that do not let the operator work:
//! what the user reads, and that it goes on once the cause is gone.

use crate::operator::Bench;
use crate::stand::{Stand, holds};
use anyhow::{Result, ensure};
use serde_json::{Value, json};

/// What `kubectl describe` shows of the conditions.
fn conditions(status: &Value) -> String {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let lines = conditions.map(|is| {
        let part = |name: &str| is[name].as_str().unwrap_or_default().to_owned();
        format!(
            "{}={} {}: {}",
            part("type"),
            part("status"),
            part("reason"),
            part("message")
        )
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Waits until a condition says something.
async fn says(stand: &Stand, condition: &str, parts: &[&str]) -> Result<()> {
    stand
        .becomes(|| {
            let status = stand.json("get pdd smollm2")?["status"].clone();
            let shown = conditions(&status);
            let line = shown.lines().find(|line| line.starts_with(condition));
            let line = line.unwrap_or_default();
            ensure!(parts.iter().all(|part| line.contains(part)), "{shown}");
            eprintln!("{line}");
            Ok(())
        })
        .await
}

#[tokio::test]
async fn pods_that_cannot_start_say_why_and_the_old_ones_serve_on() -> Result<()> {
    let stand = Stand::start(1, 1).await?;
    let image = |image: Value| json!({"spec": {"engine": {"image": image}}});
    stand.edit(&image(json!("pdserve.invalid/none:1")))?;
    says(
        &stand,
        "Progressing",
        &["WorkerDoesNotStart", "pdserve.invalid/none:1"],
    )
    .await?;
    ensure!(holds(&stand.json("get pdd smollm2")?["status"], "Ready"));
    stand.edit(&image(Value::Null))?;
    stand.settled(1, 1).await?;

    let model = |path: &str| json!({"spec": {"model": {"source": {"hostPath": {"path": path}}}}});
    // A node makes a folder of a path that it lacks; this one goes with the cluster.
    let missing = stand.cluster.dir().join("no-such.gguf");
    let missing = missing.display().to_string();
    stand.edit(&model(&missing))?;
    says(&stand, "Progressing", &["WorkerDoesNotStart", &missing]).await?;
    let good = pd_e2e::binaries::smollm2().display().to_string();
    stand.edit(&model(&good))?;
    stand.settled(1, 1).await?;

    // One that loads the model and whose every KV transfer fails.
    let fails = |template: Value| json!({"spec": {"pools": {"decode": {"podTemplate": template}}}});
    let env = json!([{"name": "DISAGGREGATION_TEST_FAILURE_PROB", "value": "1"}]);
    let container = json!({"name": "agent", "env": env});
    stand.edit(&fails(json!({"spec": {"containers": [container]}})))?;
    says(
        &stand,
        "Progressing",
        &["KvDoesNotArrive", "no KV from smollm2-prefill-"],
    )
    .await?;
    ensure!(holds(&stand.json("get pdd smollm2")?["status"], "Ready"));
    stand.edit(&fails(Value::Null))?;
    stand.settled(1, 1).await?;

    let gpus = |count: Value| {
        // The nodes pretend to have GPUs, so the worker is configured to leave them alone.
        let device = json!([{"name": "device", "value": "cpu"}]);
        let pool = json!({"resources": {"limits": {"nvidia.com/gpu": count}}, "args": device});
        json!({"spec": {"pools": {"prefill": pool, "decode": pool}}})
    };
    stand.edit(&gpus(json!("1")))?;
    says(
        &stand,
        "Progressing",
        &["NoSurgeCapacity", "Insufficient nvidia.com/gpu"],
    )
    .await?;
    ensure!(holds(&stand.json("get pdd smollm2")?["status"], "Ready"));
    stand.cluster.set_gpus(2).await?;
    stand.settled(1, 1).await?;
    stand.cluster.stop()
}

#[tokio::test]
async fn an_operator_that_may_not_write_says_so_and_goes_on_when_it_may() -> Result<()> {
    let bench = Bench::start().await?;
    bench.apply_example()?;
    bench.has_pods(&["0-1"], &["0-1"]).await?;
    let status = |part: &str| {
        let status = bench.json("get pdd smollm2")?["status"].clone();
        let shown = conditions(&status);
        ensure!(shown.contains(part), "no {part:?} in {shown}");
        let line = shown.lines().find(|line| line.contains(part));
        eprintln!("{}", line.unwrap_or_default());
        Ok(())
    };
    let grow = |count: u32| {
        bench.edit(&format!(
            r#"{{"spec": {{"pools": {{"prefill": {{"replicas": {count}}}}}}}}}"#
        ))
    };

    // Something in the cluster refuses pods.
    let policy = json!({"apiVersion": "v1", "kind": "List", "items": [{
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "no-pods"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
                "operations": ["CREATE"], "resources": ["pods"]}]},
            "validations": [{"expression": "false", "message": "no pod on a Saturday"}],
        },
    }, {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "no-pods"},
        "spec": {"policyName": "no-pods", "validationActions": ["Deny"]},
    }]});
    bench.apply(&policy)?;
    bench
        .becomes(|| {
            let refused = bench.kubectl("run probe --image=x").is_err();
            bench.kubectl("delete pod probe --ignore-not-found --wait=false")?;
            ensure!(refused, "the policy is not in force yet");
            Ok(())
        })
        .await?;
    grow(2)?;
    bench.becomes(|| status("no pod on a Saturday")).await?;
    bench.kubectl("delete validatingadmissionpolicybinding no-pods")?;
    bench.has_pods(&["0-1", "1-1"], &["0-1"]).await?;

    // Its rights are withdrawn; all it can do is to say so in its log, and to try again.
    let binding = bench.kubectl("get clusterrolebinding pdserve-operator -o json")?;
    bench.kubectl("delete clusterrolebinding pdserve-operator")?;
    grow(3)?;
    bench
        .becomes(|| {
            let log = bench.operator_log();
            ensure!(log.contains("is forbidden"), "{log}");
            let line = log.lines().rev().find(|line| line.contains("is forbidden"));
            eprintln!("{}", line.unwrap_or_default());
            Ok(())
        })
        .await?;
    bench.apply(&serde_json::from_str(&binding)?)?;
    bench.has_pods(&["0-1", "1-1", "2-1"], &["0-1"]).await?;
    bench.stop()
}
