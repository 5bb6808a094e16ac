//! `kubectl pd rollout undo`: puts the recorded parts of an earlier revision back into the spec.

use super::difference::differences;
use super::history::{Record, records};
use crate::connection::{Cluster, MANAGER};
use anyhow::{Context, Result, bail};
use kube::api::{DynamicObject, PostParams};
use kube::core::ApiResource;
use kube::{Api, ResourceExt};
use pd_crds::record::{recorded, resolved, restored};
use pd_crds::{PdDeployment, PdDeploymentSpec};
use serde_json::Value;

pub(crate) async fn undo(cluster: &Cluster, name: &str, to: Option<&str>) -> Result<String> {
    // As JSON, so that fields of a newer kind than this program knows are written back.
    let kind = ApiResource::erase::<PdDeployment>(&());
    let api =
        Api::<DynamicObject>::namespaced_with(cluster.client.clone(), &cluster.namespace, &kind);
    let found = api.get(name).await;
    let mut object = found.map_err(|e| cluster.failed::<PdDeployment>("read", name, &e))?;
    let deployment: PdDeployment = object
        .clone()
        .try_parse()
        .with_context(|| format!("PDDeployment {name} is of a newer kind than this plugin"))?;
    let records = records(cluster, &deployment).await?;
    let now = recorded(&resolved(&deployment));
    let record = pick(&records, &now, name, to)?;
    let spec = restored(&object.data["spec"], &record.data).with_context(|| {
        let revision = &record.revision;
        format!("ControllerRevision {name}-{revision} holds no spec; choose another revision")
    })?;
    if means(record, &now) {
        return Ok(format!(
            "{name} is of revision {} already.\n",
            record.revision
        ));
    }
    object.data["spec"] = spec;
    // The resourceVersion of what was read goes with it: an edit in between is a conflict.
    let params = PostParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PostParams::default()
    };
    let replaced = api.replace(name, &params, &object).await;
    replaced.map_err(|e| cluster.failed::<PdDeployment>("change", name, &e))?;
    let changes = differences(&now["spec"], &record.data["spec"]);
    Ok(announce(&deployment, record, &changes))
}

/// The record that `to` names, or else the newest that is not what the spec asks for now.
fn pick<'a>(
    records: &'a [Record],
    now: &Value,
    name: &str,
    to: Option<&str>,
) -> Result<&'a Record> {
    let Some(to) = to else {
        let other = records.iter().rev().find(|record| !means(record, now));
        return other.with_context(|| format!("{name} has no earlier revision to go back to"));
    };
    let by_revision = records.iter().find(|record| record.revision == to);
    let by_number = || {
        records
            .iter()
            .find(|record| record.number.to_string() == to)
    };
    match by_revision.or_else(by_number) {
        Some(record) => Ok(record),
        None => {
            bail!("{name} has no revision {to}; `kubectl pd rollout history {name}` lists them")
        }
    }
}

/// Whether a record asks for what `now` does. An older operator may have left out defaults.
fn means(record: &Record, now: &Value) -> bool {
    let spec = serde_json::from_value::<PdDeploymentSpec>(record.data["spec"].clone());
    spec.is_ok_and(|spec| recorded(&spec) == *now)
}

fn announce(deployment: &PdDeployment, record: &Record, changes: &[String]) -> String {
    let name = deployment.name_any();
    let Record {
        number, revision, ..
    } = record;
    let changes: String = changes.iter().map(|line| format!("  {line}\n")).collect();
    let next = if deployment.spec.rollout.paused {
        format!("The rollout is paused: `kubectl pd rollout resume {name}` lets it go.\n")
    } else {
        format!("`kubectl pd status {name}` shows the rollout.\n")
    };
    format!("{name} goes back to revision {revision} ({number}); sizes stay:\n{changes}{next}")
}

#[cfg(test)]
mod tests;
