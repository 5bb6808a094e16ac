//! A deployment as one screen of text.

use crate::metrics::Figures;
use crate::text::{age, latency, or_dash, table};
use crate::view::{View, label};
use crate::worker::{State, is_ready, node};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use pd_crds::PoolRole;
use pd_crds::pod::Pod;
use pd_protocol::labels;
use std::fmt::Write;

/// The share of requests for which a latency holds.
const SHARE: f64 = 0.95;
/// Longest state in the table; `explain` shows all of it.
const STATE_CHARS_MAX: usize = 60;

pub(crate) fn draw(view: &View, figures: &Figures, now: Timestamp) -> String {
    let deployment = &view.deployment;
    let endpoint = view.status().and_then(|status| status.endpoint.as_deref());
    let mut out = format!(
        "{}  namespace {}  model {}  {}\n",
        deployment.name_any(),
        deployment.namespace().unwrap_or_default(),
        deployment.served_model_name(),
        endpoint.unwrap_or("no endpoint yet"),
    );
    for (name, text) in head(view, figures, now) {
        let _infallible = writeln!(out, "  {name:<12} {text}");
    }
    if let Some(pools) = view.pools() {
        let header = ["POOL", "DESIRED", "ROUTABLE", "DRAINING", "UPDATED"].map(str::to_owned);
        let rows = pools.map(|(name, pool)| {
            [
                name.to_owned(),
                pool.desired.to_string(),
                pool.routable.to_string(),
                pool.draining.to_string(),
                format!("{} of {}", pool.updated, pool.desired),
            ]
        });
        let rows: Vec<_> = std::iter::once(header).chain(rows).collect();
        out.push('\n');
        out.push_str(&table(&rows));
    }
    if view.workers().next().is_some() {
        out.push('\n');
        out.push_str(&workers(view, figures, now));
    }
    if let [(pod, why), others @ ..] = &figures.silent[..] {
        let more = match others.len() {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        let _infallible = writeln!(out, "\n  No figures of {pod}{more}: {}", why.trim());
    }
    out
}

/// The lines above the tables.
fn head(view: &View, figures: &Figures, now: Timestamp) -> Vec<(&'static str, String)> {
    let Some(status) = view.status() else {
        let unseen = "no operator has taken it up yet".to_owned();
        return vec![("Ready", unseen)];
    };
    let condition = |name| {
        let it = view.condition(name)?;
        let since = age(it.last_transition_time.0, now);
        let (status, reason, message) = (&it.status, &it.reason, &it.message);
        Some((
            name,
            format!("{status:<5} for {since:<5} {reason}: {message}"),
        ))
    };
    let mut lines: Vec<_> = ["Ready", "Progressing"]
        .into_iter()
        .filter_map(condition)
        .collect();
    // These are news only where they do not hold.
    let fails = |name: &&str| view.condition(name).is_some_and(|it| it.status == "False");
    let news = [
        "SpecValid",
        "ImagesAlike",
        "PeerKeysRotated",
        "StateSlotsFree",
        "WeightsServed",
    ];
    let failing = news.into_iter().filter(fails);
    lines.extend(failing.filter_map(condition));
    lines.push(("Revision", revision(view)));
    let kv_compat = status.kv_compat.as_deref();
    lines.push(("KV compat", kv_compat.unwrap_or("-").to_owned()));
    lines.push(("Routers", routers(view, figures)));
    lines.push(("Latency", latencies(view, figures)));
    lines.push(("Scaling", scaling(view, now)));
    lines
}

fn revision(view: &View) -> String {
    let revision = view.status().map(|status| status.revision.clone());
    let revision = revision.unwrap_or_default();
    let paused = if view.deployment.spec.rollout.paused {
        " (paused)"
    } else {
        ""
    };
    if revision.current == revision.update {
        format!("{}{paused}", revision.current)
    } else {
        format!("{} → {}{paused}", revision.current, revision.update)
    }
}

fn routers(view: &View, figures: &Figures) -> String {
    let ready = view.routers().filter(|pod| is_ready(pod)).count();
    // Where the number is left to others, those that there are.
    let wanted = view.deployment.spec.router.replicas;
    let wanted = wanted.map_or_else(
        || view.routers().count().max(1),
        |wanted| usize::try_from(wanted).unwrap_or(0),
    );
    let load = figures.routers.as_ref().map(|routers| {
        let (in_flight, waiting) = (routers.in_flight, routers.waiting);
        format!(" · {in_flight} requests in flight · {waiting} waiting")
    });
    format!("{ready} of {wanted} ready{}", load.unwrap_or_default())
}

fn latencies(view: &View, figures: &Figures) -> String {
    let goal = |ms: Option<i32>| ms.map_or_else(String::new, |ms| format!(" (goal {ms} ms)"));
    let slo = &view.deployment.spec.slo;
    let ttft = figures.routers.as_ref();
    let ttft = ttft.and_then(|routers| routers.ttft.quantile(SHARE));
    format!(
        "p95 since start: TTFT {}{} · TPOT {}{}",
        or_dash(ttft, latency),
        goal(slo.ttft_ms),
        or_dash(figures.tpot.quantile(SHARE), latency),
        goal(slo.tpot_ms),
    )
}

/// Who scales, and the last decision.
fn scaling(view: &View, now: Timestamp) -> String {
    let mode = format!("{:?}", view.deployment.spec.autoscaling.mode);
    let decision = view.status().and_then(|status| status.decisions.first());
    let decision = decision.map(|it| {
        let ago = age(it.time.0, now);
        format!(" · {ago} ago {}: {}", it.reason, it.message)
    });
    format!("{mode}{}", decision.unwrap_or_default())
}

fn workers(view: &View, figures: &Figures, now: Timestamp) -> String {
    let header = [
        "WORKER",
        "NODE",
        "REVISION",
        "IN FLIGHT",
        "QUEUED",
        "TTFT",
        "TPOT",
        "STATE",
    ];
    let rows = view
        .workers()
        .map(|(role, pod)| row(role, pod, figures, now));
    let rows: Vec<_> = std::iter::once(header.map(str::to_owned))
        .chain(rows)
        .collect();
    table(&rows)
}

fn row(role: PoolRole, pod: &Pod, figures: &Figures, now: Timestamp) -> [String; 8] {
    let name = pod.name_any();
    let own = figures.workers.get(&name);
    let ttft = own.filter(|_| role == PoolRole::Prefill);
    let ttft = ttft.and_then(|own| own.ttft.quantile(SHARE));
    let tpot = own.and_then(|own| own.tpot.quantile(SHARE));
    [
        name.clone(),
        node(pod).unwrap_or("-").to_owned(),
        label(pod, labels::REVISION).to_owned(),
        or_dash(figures.in_flight_on(&name), |count| count.to_string()),
        or_dash(own.and_then(|own| own.queued), |count| count.to_string()),
        or_dash(ttft, latency),
        or_dash(tpot, latency),
        shortened(&State::of(pod).describe(now)),
    ]
}

fn shortened(state: &str) -> String {
    let line = state.lines().next().unwrap_or_default();
    match line.char_indices().nth(STATE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests;
