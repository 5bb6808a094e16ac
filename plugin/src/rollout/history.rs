//! `kubectl pd rollout history`: the recorded revisions.

use super::difference::differences;
use crate::connection::Cluster;
use crate::text::{age, or_dash, table};
use anyhow::Result;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use pd_crds::PdDeployment;
use pd_crds::status::RevisionStatus;
use pd_protocol::labels;
use serde_json::Value;

/// A revision that can be gone back to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Record {
    /// Counts up with every revision that was wanted.
    pub(crate) number: i64,
    pub(crate) revision: String,
    pub(crate) data: Value,
    created: Option<Timestamp>,
}

pub(crate) async fn history(cluster: &Cluster, name: &str) -> Result<String> {
    let deployment = cluster.deployment(name).await?;
    let records = records(cluster, &deployment).await?;
    if records.is_empty() {
        return Ok(format!("No revision of {name} is recorded yet.\n"));
    }
    let revision = deployment.status.unwrap_or_default().revision;
    Ok(draw(&records, &revision, Timestamp::now()))
}

/// All records of a deployment, oldest first.
pub(crate) async fn records(cluster: &Cluster, deployment: &PdDeployment) -> Result<Vec<Record>> {
    let name = deployment.name_any();
    let stored: Vec<ControllerRevision> = cluster.labelled(labels::DEPLOYMENT, &name).await?;
    let records = stored.into_iter();
    let records = records.filter_map(|stored| Record::of(deployment, stored));
    let mut records: Vec<Record> = records.collect();
    records.sort_by_key(|record| record.number);
    Ok(records)
}

fn draw(records: &[Record], revision: &RevisionStatus, now: Timestamp) -> String {
    let mut rows = vec![["NUMBER", "REVISION", "AGE", "", "CHANGES"].map(str::to_owned)];
    let before = std::iter::once(None).chain(records.iter().map(Some));
    for (before, record) in before.zip(records) {
        let role = if record.revision == revision.current {
            "serves"
        } else if record.revision == revision.update {
            "wanted"
        } else {
            ""
        };
        let changes = before.map(|before| differences(&before.data["spec"], &record.data["spec"]));
        let mut changes = changes.unwrap_or_default().into_iter();
        rows.push([
            record.number.to_string(),
            record.revision.clone(),
            or_dash(record.created, |created| age(created, now)),
            role.to_owned(),
            or_dash(changes.next(), |first| first),
        ]);
        rows.extend(changes.map(|more| ["", "", "", "", &more].map(str::to_owned)));
    }
    table(&rows)
}

// === impl Record ===

impl Record {
    /// Reads what the operator stored; nothing if another deployment's operator did.
    pub(crate) fn of(deployment: &PdDeployment, stored: ControllerRevision) -> Option<Self> {
        let prefix = format!("{}-", deployment.name_any());
        Some(Self {
            number: stored.revision,
            revision: stored.name_any().strip_prefix(&prefix)?.to_owned(),
            created: stored.creation_timestamp().map(|time| time.0),
            data: stored.data?.0,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    //! Facts about histories.

    use super::*;
    use crate::fixture::{at, deployment, settled};
    use pd_crds::record::recorded;
    use serde_json::json;

    /// The record of the settled deployment with an edit of its spec.
    pub(crate) fn mk_record(number: i64, revision: &str, edit: impl Fn(&mut Value)) -> Record {
        let mut document = settled();
        edit(&mut document["spec"]);
        let deployment = deployment(document);
        let stored = json!({
            "metadata": {
                "name": format!("tiny-{revision}"),
                "creationTimestamp": "2026-01-02T11:00:00Z",
            },
            "revision": number,
            "data": recorded(&deployment.spec),
        });
        let stored = serde_json::from_value(stored).expect("a ControllerRevision");
        Record::of(&deployment, stored).expect("a record of it")
    }

    #[test]
    fn a_history_lists_what_each_revision_changed() {
        let records = [
            mk_record(1, "bbbbbbbbbb", |_| ()),
            mk_record(3, "aaaaaaaaaa", |spec| {
                spec["pools"]["decode"]["tp"] = json!(2);
                spec["engine"]["args"] = json!([{"name": "chunked-prefill-size", "value": "512"}]);
            }),
            mk_record(4, "cccccccccc", |spec| {
                spec["engine"] = json!({"image": "i:2"})
            }),
        ];
        let revision = RevisionStatus {
            current: "aaaaaaaaaa".to_owned(),
            update: "cccccccccc".to_owned(),
        };
        insta::assert_snapshot!(draw(&records, &revision, at("12:00:00")));
    }
}
