//! Fetches a model from the hub before a worker is made that reads it: one pod per source, whose progress the status
//! shows. A branch is resolved once: from then on the status says its commit.
//!
//! ```text
//! no pod → made → it answers how far it is → it ended: its last words are the commit → the status says so → it goes
//!            └ it failed: kubelet starts it again, and the status says its last words
//! ```

use super::apply::Writer;
use super::error::{ApplyError, bounded};
use super::kept_models::clean_up;
use super::observe::Clients;
use crate::controller::build::Resources;
use crate::controller::build::fetch::{build_fetcher, clean_first, is_fetcher};
use http::Method;
use kube::ResourceExt;
use pd_crds::PdDeployment;
use pd_crds::pod::Pod;
use pd_crds::status::ModelStatus;
use pd_crds::stuck::stuck;
use pd_hub::{Bytes, Report};
use pd_protocol::ports;
use serde::Deserialize;
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Longest wait for how far a fetch is.
pub(super) const ANSWER_LIMIT: Duration = Duration::from_secs(1);
/// How often that is asked.
pub(super) const INTERVAL: Duration = Duration::from_secs(3);

/// The last words of one that has ended well.
#[derive(Deserialize)]
struct Outcome {
    commit: String,
    bytes: u64,
}

/// How far the model is that a spec asks for, up to where workers are made; nothing where it is fetched from no hub.
pub(super) async fn fetch(
    writer: &Writer<'_>,
    deployment: &PdDeployment,
    resources: &Resources,
) -> Result<Option<ModelStatus>, ApplyError> {
    let Some(source) = &deployment.spec.model.source.hugging_face else {
        remove_fetchers(writer, "").await?;
        return Ok(None);
    };
    let mut model = ModelStatus::of(source);
    let status = writer.deployment.status.as_ref();
    let before = status.and_then(|status| status.model.clone());
    let before = before.filter(|before| before.is_of_source(&model));
    if let Some(before) = before.as_ref().filter(|before| before.is_resolved()) {
        // It is known now, so that its pod may go.
        remove_fetchers(writer, "").await?;
        return Ok(Some(before.clone()));
    }
    if let Some(before) = before {
        model = before;
    }
    let config = &writer.context.config;
    let mut wanted = build_fetcher(deployment, source, &resources.prefill, config);
    let name = wanted.name_any();
    remove_fetchers(writer, &name).await?;
    let pods = &writer.context.index.pods;
    match pods.find(&writer.key(), &name) {
        None => {
            if let Some(clean_up) = clean_up(writer, source).await? {
                clean_first(&mut wanted, &clean_up);
            }
            match writer.create(&wanted, pods, |pod| pod).await {
                Ok(_) => goes_on(&mut model, "fetching: its pod starts"),
                // A quota, a policy: it is tried again as long as it is wanted.
                Err(error) => is_refused(&mut model, &error),
            }
        }
        Some(pod) => observe(writer, &pod, &mut model).await?,
    }
    Ok(Some(model))
}

/// Takes in what the pod says; one that is of no use any more is deleted, so that the next reconcile makes another.
async fn observe(
    writer: &Writer<'_>,
    pod: &Arc<Pod>,
    model: &mut ModelStatus,
) -> Result<(), ApplyError> {
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    match phase {
        Some("Succeeded") => match outcome(pod) {
            Some(outcome) => {
                model.commit = outcome.commit;
                model.total_bytes = number(outcome.bytes);
                let total = Bytes(outcome.bytes);
                if model.host_path.is_empty() {
                    model.bytes = model.total_bytes;
                    goes_on(model, &format!("fetched {total}"));
                } else {
                    let how = format!("each worker fetches {total} to its node, or finds it there");
                    goes_on(model, &how);
                }
                return Ok(());
            }
            None => goes_on(
                model,
                "fetching: its pod ended without a word; another is made",
            ),
        },
        Some("Failed") => goes_on(model, "fetching: its pod was lost; another is made"),
        _ => {
            if let Some(stuck) = stuck(pod) {
                let why = stuck.message.split_once("error: ");
                let why = why.map_or(stuck.message.as_str(), |(_, why)| why);
                is_refused(model, &why);
            } else if phase == Some("Running") {
                observe_running(ask(writer, pod).await, model);
            }
            return Ok(());
        }
    }
    if pod.metadata.deletion_timestamp.is_none() {
        writer.remove::<Pod>(&pod.name_any(), pod.uid()).await?;
    }
    Ok(())
}

/// Takes in how far a pod is that runs; nothing is known of one that does not answer.
fn observe_running(report: Option<Report>, model: &mut ModelStatus) {
    let Some(report) = report else {
        if model.total_bytes == 0 && !model.refused {
            goes_on(model, "fetching: its pod does not answer how far it is");
        }
        return;
    };
    // What it was refused before stands until it gets further.
    if report.total_bytes > 0 || !model.refused {
        (model.bytes, model.total_bytes) = (number(report.bytes), number(report.total_bytes));
        goes_on(model, &format!("fetching: {report}"));
    }
}

fn goes_on(model: &mut ModelStatus, how: &str) {
    how.clone_into(&mut model.message);
    model.refused = false;
}

fn is_refused(model: &mut ModelStatus, why: &impl Display) {
    model.message = bounded(&format!("cannot be fetched: {why}"));
    model.refused = true;
}

fn number(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// How far a pod is; nothing where it does not say.
async fn ask(writer: &Writer<'_>, pod: &Pod) -> Option<Report> {
    let ip = pod.status.as_ref()?.pod_ip.as_deref()?.parse().ok()?;
    let url = format!("http://{}/progress", SocketAddr::new(ip, ports::HTTP));
    let client = Clients::of(writer, None).http;
    let answer = client.call(Method::GET, &url, None, ANSWER_LIMIT).await;
    answer.ok()
}

fn outcome(pod: &Pod) -> Option<Outcome> {
    let mut containers = pod.status.as_ref()?.container_statuses.iter().flatten();
    let words = containers.find_map(|container| {
        let ended = container.state.as_ref()?.terminated.as_ref()?;
        ended.message.clone()
    });
    serde_json::from_str(&words?).ok()
}

/// Deletes pods that fetch for this deployment, but for one.
async fn remove_fetchers(writer: &Writer<'_>, keep: &str) -> Result<(), ApplyError> {
    for pod in writer.context.index.pods.of(&writer.key()) {
        let name = pod.name_any();
        let is_old = name != keep && is_fetcher(writer.deployment, &name);
        if is_old && pod.metadata.deletion_timestamp.is_none() {
            writer.remove::<Pod>(&name, pod.uid()).await?;
        }
    }
    Ok(())
}

/// Whether a status is of another model than one before, and not only of how far it is.
pub(super) fn is_other(before: Option<&ModelStatus>, now: Option<&ModelStatus>) -> bool {
    match (before, now) {
        (Some(before), Some(now)) => !before.is_of_source(now) || before.commit != now.commit,
        (before, now) => before.is_some() != now.is_some(),
    }
}

#[cfg(test)]
mod tests;
