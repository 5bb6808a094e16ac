//! The state of a deployment on this machine, as a file for programs and as a table for people.

use pd_crds::scaling::ScalingMode;
use pd_crds::status::Decision;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// A deployment that runs on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LocalStatus {
    pub(crate) name: String,
    pub(crate) namespace: String,
    /// The YAML file that it follows.
    pub(crate) file: String,
    /// Process id of the operator.
    pub(crate) operator_pid: u32,
    /// Base URL of the OpenAI API.
    pub(crate) endpoint: String,
    pub(crate) phase: LocalPhase,
    /// What is wrong with the file's last edit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) file_error: Option<String>,
    pub(crate) pods: Vec<PodStatus>,
    pub(crate) scaling: ScalingStatus,
}

/// Who sizes the pools, and why they have the size they have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ScalingStatus {
    pub(crate) mode: ScalingMode,
    /// The last ones, newest first.
    pub(crate) decisions: Vec<Decision>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum LocalPhase {
    /// Not everything that is wanted serves yet.
    Progressing,
    Ready,
    Stopping,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PodStatus {
    pub(crate) name: String,
    /// `router`, `prefill` or `decode`.
    pub(crate) component: String,
    pub(crate) state: String,
    pub(crate) address: String,
    /// Base URL of its HTTP API.
    pub(crate) url: String,
    /// Base URL of its admin API, if its engine has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) admin_url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pid: Option<u32>,
    pub(crate) restarts: u32,
    pub(crate) revision: String,
    /// Why its process ended last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
}

/// Draws deployments and their pods.
pub(crate) fn table(deployments: &[LocalStatus]) -> String {
    if deployments.is_empty() {
        return "nothing runs; start with `pd-operator local -f FILE`\n".to_owned();
    }
    let mut out = String::new();
    for deployment in deployments {
        let LocalStatus {
            name,
            namespace,
            file,
            operator_pid,
            endpoint,
            phase,
            file_error,
            pods,
            scaling,
        } = deployment;
        let _infallible = writeln!(
            out,
            "{namespace}/{name}  {phase:?}  {endpoint}  ({file}, pid {operator_pid})"
        );
        if let Some(error) = file_error {
            let _infallible = writeln!(out, "the file's last edit was refused: {error}");
        }
        let header = ["POD", "STATE", "ADDRESS", "PID", "RESTARTS", "REVISION"].map(str::to_owned);
        let rows: Vec<[String; 6]> = std::iter::once(header)
            .chain(pods.iter().map(row))
            .collect();
        draw(&rows, &mut out);
        draw_troubles(pods, &mut out);
        draw_decisions(&scaling.decisions, &mut out);
    }
    out
}

fn row(pod: &PodStatus) -> [String; 6] {
    let pid = pod
        .pid
        .map_or_else(|| "-".to_owned(), |pid| pid.to_string());
    [
        pod.name.clone(),
        pod.state.clone(),
        pod.address.clone(),
        pid,
        pod.restarts.to_string(),
        pod.revision.clone(),
    ]
}

/// Why processes that do not run have ended.
fn draw_troubles(pods: &[PodStatus], out: &mut String) {
    for pod in pods.iter().filter(|pod| pod.pid.is_none()) {
        if let Some(reason) = &pod.reason {
            let _infallible = writeln!(out, "  {}: {reason}", pod.name);
        }
    }
}

fn draw_decisions(decisions: &[Decision], out: &mut String) {
    if decisions.is_empty() {
        return;
    }
    let header = ["DECIDED", "REASON", "LIMITED BY", "REPLICAS"].map(str::to_owned);
    let rows = decisions.iter().map(|decision| {
        [
            decision.time.0.to_string(),
            decision.reason.clone(),
            decision.limited_by.clone(),
            decision.message.clone(),
        ]
    });
    draw(
        &std::iter::once(header).chain(rows).collect::<Vec<_>>(),
        out,
    );
}

fn draw<const COLUMNS: usize>(rows: &[[String; COLUMNS]], out: &mut String) {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    for row in rows {
        let cells = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        let _infallible = writeln!(out, "  {}", line.trim_end());
    }
}

#[cfg(test)]
mod tests;
