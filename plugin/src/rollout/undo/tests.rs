//! Facts about going back.

use super::*;
use crate::fixture::apiserver::Apiserver;
use crate::fixture::{deployment, settled};
use crate::rollout::history::tests::mk_record;
use http::StatusCode;
use serde_json::json;

/// The first and the third are what the settled deployment asks for.
fn mk_records() -> [Record; 3] {
    let image = |spec: &mut Value| spec["engine"] = json!({"image": "i:2"});
    [
        mk_record(1, "1111111111", |spec| spec["kv"] = json!({"pageSize": 64})),
        mk_record(2, "bbbbbbbbbb", image),
        mk_record(3, "aaaaaaaaaa", |_| ()),
    ]
}

fn picked(to: Option<&str>) -> Result<String> {
    let now = recorded(&deployment(settled()).spec);
    let records = mk_records();
    pick(&records, &now, "tiny", to).map(|record| record.revision.clone())
}

#[test]
fn the_previous_revision_is_the_newest_other_one() {
    assert_eq!(picked(None).unwrap(), "bbbbbbbbbb");
}

#[test]
fn a_revision_goes_by_its_digest_or_its_number() {
    assert_eq!(picked(Some("1")).unwrap(), "1111111111");
    assert_eq!(picked(Some("1111111111")).unwrap(), "1111111111");
    assert_eq!(
        picked(Some("9")).unwrap_err().to_string(),
        "tiny has no revision 9; `kubectl pd rollout history tiny` lists them"
    );
}

#[test]
fn a_record_that_left_out_defaults_means_the_same() {
    let mut records = mk_records();
    let pools = &mut records[2].data["spec"]["pools"];
    pools["decode"] = json!({});
    let now = recorded(&deployment(settled()).spec);
    assert!(means(&records[2], &now));
    assert!(!means(&records[1], &now));
}

#[test]
fn without_another_revision_there_is_nothing_to_go_back_to() {
    let now = recorded(&deployment(settled()).spec);
    let records = [mk_record(1, "aaaaaaaaaa", |_| ())];
    let refused = pick(&records, &now, "tiny", None).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "tiny has no earlier revision to go back to"
    );
}

const DEPLOYMENT: &str = "/apis/pdserve.io/v1alpha1/namespaces/ml/pddeployments/tiny";
const RECORDS: &str = "/apis/apps/v1/namespaces/ml/controllerrevisions";

/// Holds the settled deployment with a field of a later version, and one earlier revision.
fn mk_apiserver() -> Apiserver {
    let mut stored = settled();
    stored["metadata"]["resourceVersion"] = json!("7");
    stored["spec"]["later"] = json!("kept");
    let earlier = mk_record(1, "1111111111", |spec| {
        spec["pools"]["decode"] = json!({"replicas": 9, "tp": 2});
    });
    let record = json!({
        "metadata": {"name": "tiny-1111111111"}, "revision": 1, "data": earlier.data,
    });
    let apiserver = Apiserver::default();
    apiserver.answers("GET", DEPLOYMENT, StatusCode::OK, stored);
    let list = json!({"apiVersion": "apps/v1", "kind": "ControllerRevisionList",
        "metadata": {}, "items": [record]});
    apiserver.answers("GET", RECORDS, StatusCode::OK, list);
    apiserver
}

#[tokio::test]
async fn what_is_written_is_bound_to_what_was_read_and_keeps_unknown_fields() {
    let apiserver = mk_apiserver();
    apiserver.answers("PUT", DEPLOYMENT, StatusCode::OK, settled());
    let printed = undo(&apiserver.cluster(), "tiny", None).await.unwrap();
    assert_eq!(
        printed,
        "tiny goes back to revision 1111111111 (1); sizes stay:
  pools.decode.tp: 1 → 2
`kubectl pd status tiny` shows the rollout.
"
    );
    let written = apiserver.written("PUT", DEPLOYMENT);
    assert_eq!(written["metadata"]["resourceVersion"], "7");
    assert_eq!(written["spec"]["later"], "kept");
    assert_eq!(written["spec"]["slo"], settled()["spec"]["slo"]);
    let decode = &written["spec"]["pools"]["decode"];
    assert_eq!((&decode["replicas"], &decode["tp"]), (&json!(2), &json!(2)));
}

#[tokio::test]
async fn an_edit_in_between_is_a_conflict() {
    let apiserver = mk_apiserver();
    let refusal = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
        "message": "the object has been modified", "reason": "Conflict", "code": 409});
    apiserver.answers("PUT", DEPLOYMENT, StatusCode::CONFLICT, refusal);
    let refused = undo(&apiserver.cluster(), "tiny", None).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "cannot change PDDeployment tiny in namespace ml: the object has been modified; it was changed meanwhile: look again, and repeat"
    );
}
