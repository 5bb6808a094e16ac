//! Facts about statuses that were written.

use super::*;
use serde_json::json;

fn mk_deployment(version: &str, kv_compat: &str) -> Arc<PdDeployment> {
    let object = json!({
        "apiVersion": "pdserve.io/v1alpha1", "kind": "PDDeployment",
        "metadata": {"name": "tiny", "uid": "u", "resourceVersion": version},
        "spec": {"model": {"source": {"hostPath": {"path": "/m.gguf"}}}, "pools": {}},
    });
    let mut deployment: PdDeployment = serde_json::from_value(object).expect("a PDDeployment");
    deployment.status = Some(mk_status(kv_compat));
    Arc::new(deployment)
}

fn mk_status(kv_compat: &str) -> PdDeploymentStatus {
    PdDeploymentStatus {
        kv_compat: Some(kv_compat.to_owned()),
        ..PdDeploymentStatus::default()
    }
}

fn renewed(ours: &str, stored: (&str, &str)) -> Option<PdDeploymentStatus> {
    let written = WrittenStatuses {
        deployment: Some((9, mk_status(ours))),
        ..WrittenStatuses::default()
    };
    let mut deployment = mk_deployment(stored.0, stored.1);
    written.renew(&mut deployment);
    deployment.status.clone()
}

#[test]
fn a_status_that_the_watch_has_not_reported_yet_counts() {
    assert_eq!(renewed("new", ("8", "old")), Some(mk_status("new")));
}

#[test]
fn a_status_that_someone_changed_since_counts() {
    assert_eq!(renewed("ours", ("10", "theirs")), Some(mk_status("theirs")));
}

#[test]
fn a_change_is_debounced_before_it_is_written() {
    let mut written = WrittenStatuses::default();
    let began = Instant::now();
    assert_eq!(written.debounce(began), Some(DEBOUNCE));
    assert_eq!(written.debounce(began + DEBOUNCE), None, "it is time");
    written.pending_since = None;
    let next = written.debounce(began + DEBOUNCE);
    assert_eq!(next, Some(DEBOUNCE), "the next change waits again");
}
