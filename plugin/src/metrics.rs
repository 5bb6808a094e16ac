//! What routers and agents say of their load, read through the apiserver's proxy of their pods.

mod histogram;

use crate::connection::{Cluster, message_of};
use crate::view::{View, label};
use futures::{StreamExt, stream};
use histogram::Histogram;
use kube::ResourceExt;
use pd_crds::pod::Pod;
use pd_protocol::exposition::{self, Sample};
use pd_protocol::labels;
use pd_protocol::ports::{self, WorkerPorts};
use std::collections::BTreeMap;
use std::time::Duration;

/// Longest wait for one pod's metrics.
const LIMIT: Duration = Duration::from_secs(3);
/// Pods that are asked at the same time.
const ASKED_MAX: usize = 16;
/// Gauges that count requests which wait on an agent: for a handshake, for pages, for a step.
const QUEUES: [&str; 3] = [
    "pdserve_bootstrap_queue_size",
    "pdserve_num_decode_prealloc_queue_reqs",
    "pdserve_num_queue_reqs",
];

/// What one pod answered, or why it did not.
pub(crate) struct Scrape {
    pub(crate) pod: String,
    pub(crate) is_router: bool,
    pub(crate) text: Result<String, String>,
}

/// The figures of a deployment. A figure that no worker reported is absent.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) routers: Option<RouterFigures>,
    /// Time per output token of all workers; only decode has any.
    pub(crate) tpot: Histogram,
    pub(crate) workers: BTreeMap<String, WorkerFigures>,
    /// Pods that did not answer, and why.
    pub(crate) silent: Vec<(String, String)>,
}

/// Of all routers together.
#[derive(Debug, Default)]
pub(crate) struct RouterFigures {
    pub(crate) in_flight: f64,
    pub(crate) waiting: f64,
    pub(crate) ttft: Histogram,
    /// Requests in flight on each worker.
    on_worker: BTreeMap<String, f64>,
}

#[derive(Debug)]
pub(crate) struct WorkerFigures {
    pub(crate) queued: Option<f64>,
    pub(crate) ttft: Histogram,
    pub(crate) tpot: Histogram,
    /// Of a model with recurrent state.
    slots: Option<StateSlots>,
}

/// Slots of recurrent state, beside the KV pool.
#[derive(Clone, Copy, Debug)]
struct StateSlots {
    total: f64,
    /// Free, or of states that are cached for others.
    unused: f64,
    /// Share of the KV pool in use.
    token_usage: f64,
}

/// Asks every pod that runs.
pub(crate) async fn scrape(cluster: &Cluster, view: &View) -> Vec<Scrape> {
    let router = &view.deployment.spec.router;
    let router_port = u16::try_from(router.metrics_port()).unwrap_or(ports::HTTP);
    let pods = view.pods.iter();
    let leaders = pods.filter(|pod| !labels::is_follower(pod.labels()));
    let running = leaders.filter(|pod| {
        let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
        phase == Some("Running")
    });
    let scrapes = running.map(|pod| {
        let is_router = label(pod, labels::ROLE) == "router";
        let own = WorkerPorts::of(pod.annotations());
        let port = if is_router { router_port } else { own.http };
        async move {
            Scrape {
                pod: pod.name_any(),
                is_router,
                text: text_of(cluster, pod, port).await,
            }
        }
    });
    stream::iter(scrapes).buffered(ASKED_MAX).collect().await
}

async fn text_of(cluster: &Cluster, pod: &Pod, port: u16) -> Result<String, String> {
    let (namespace, name) = (&cluster.namespace, pod.name_any());
    // The apiserver takes any certificate of a pod's.
    let scheme = match pod.annotations().get(labels::SCHEME) {
        Some(scheme) => format!("{scheme}:"),
        None => String::new(),
    };
    let path = format!("/api/v1/namespaces/{namespace}/pods/{scheme}{name}:{port}/proxy/metrics");
    let request = http::Request::get(path).body(Vec::new());
    let request = request.map_err(|error| error.to_string())?;
    let answer = tokio::time::timeout(LIMIT, cluster.client.request_text(request)).await;
    let answer = answer.map_err(|_| format!("no answer within {} s", LIMIT.as_secs()))?;
    answer.map_err(|error| message_of(&error))
}

// === impl Figures ===

impl Figures {
    pub(crate) fn of(scrapes: &[Scrape]) -> Self {
        let mut figures = Self::default();
        for Scrape {
            pod,
            is_router,
            text,
        } in scrapes
        {
            let samples = match text {
                // A screen with fewer figures is better than none.
                Ok(text) => exposition::samples(text).flatten().collect::<Vec<_>>(),
                Err(why) => {
                    figures.silent.push((pod.clone(), why.clone()));
                    continue;
                }
            };
            if *is_router {
                let routers = figures.routers.get_or_insert_default();
                routers.take(&samples);
            } else {
                let worker = WorkerFigures::of(&samples);
                figures.tpot.take(&samples, TPOT);
                figures.workers.insert(pod.clone(), worker);
            }
        }
        figures
    }

    /// Requests that the routers have in flight on a worker.
    pub(crate) fn in_flight_on(&self, worker: &str) -> Option<f64> {
        self.routers.as_ref()?.on_worker.get(worker).copied()
    }
}

const STATE_SLOTS: &str = "pdserve_state_slots";
/// From which share in use on a pool is full, of pages or of slots.
const FULL: f64 = 0.95;
const TPOT: &str = "pdserve_inter_token_latency_seconds";

// === impl RouterFigures ===

impl RouterFigures {
    fn take(&mut self, samples: &[Sample<'_>]) {
        self.in_flight += sum(samples, &["pd_router_in_flight"]).unwrap_or(0.0);
        self.waiting += sum(samples, &["pd_router_queue_waiting"]).unwrap_or(0.0);
        self.ttft.take(samples, "pd_router_ttft_seconds");
        for sample in samples {
            let worker = sample.label("worker");
            if let Some(worker) = worker.filter(|_| sample.name == "pd_router_worker_requests") {
                *self.on_worker.entry(worker.into_owned()).or_default() += sample.value;
            }
        }
    }
}

// === impl WorkerFigures ===

impl WorkerFigures {
    fn of(samples: &[Sample<'_>]) -> Self {
        let histogram = |name| {
            let mut histogram = Histogram::default();
            histogram.take(samples, name);
            histogram
        };
        Self {
            queued: sum(samples, &QUEUES),
            ttft: histogram("pdserve_time_to_first_token_seconds"),
            tpot: histogram(TPOT),
            slots: StateSlots::of(samples),
        }
    }

    /// How many slots of recurrent state are in use and how many there are, where requests wait for one although pages
    /// are free: by the operator's bounds.
    pub(crate) fn lacks_slots(&self) -> Option<(f64, f64)> {
        let used = |slots: &StateSlots| slots.total - slots.unused;
        let slots = self
            .slots
            .filter(|slots| used(slots) >= FULL * slots.total)?;
        let waits = self.queued.is_some_and(|queued| queued > 0.0);
        (waits && slots.token_usage < FULL).then_some((used(&slots), slots.total))
    }
}

// === impl StateSlots ===

impl StateSlots {
    fn of(samples: &[Sample<'_>]) -> Option<Self> {
        let is_unused = |sample: &&Sample<'_>| {
            let state = sample.label("state");
            state.is_some_and(|state| matches!(&*state, "free" | "cached"))
        };
        let slots = samples.iter().filter(|sample| sample.name == STATE_SLOTS);
        let unused = slots.filter(is_unused).map(|sample| sample.value).sum();
        let total = sum(samples, &[STATE_SLOTS]).filter(|&total| total > 0.0);
        total.map(|total| Self {
            total,
            unused,
            token_usage: sum(samples, &["pdserve_token_usage"]).unwrap_or(0.0),
        })
    }
}

/// The sum of all series of some names; nothing where there is none.
fn sum(samples: &[Sample<'_>], names: &[&str]) -> Option<f64> {
    let of_names = samples.iter().filter(|sample| names.contains(&sample.name));
    of_names.map(|sample| sample.value).reduce(|a, b| a + b)
}

#[cfg(test)]
mod tests {
    //! Facts about figures.

    use super::*;

    fn mk_scrape(pod: &str, is_router: bool, text: &str) -> Scrape {
        Scrape {
            pod: pod.to_owned(),
            is_router,
            text: Ok(text.to_owned()),
        }
    }

    #[test]
    fn routers_add_up() {
        let text = "pd_router_in_flight 2
pd_router_queue_waiting 1
pd_router_worker_requests{role=\"decode\",worker=\"d\"} 2
pd_router_ttft_seconds_bucket{api=\"generate\",le=\"0.1\"} 1
pd_router_ttft_seconds_bucket{api=\"generate\",le=\"+Inf\"} 1
";
        let both = [mk_scrape("a", true, text), mk_scrape("b", true, text)];
        let figures = Figures::of(&both);
        assert_eq!(figures.in_flight_on("d"), Some(4.0));
        assert_eq!(figures.in_flight_on("p"), None);
        let routers = figures.routers.expect("they answered");
        assert_eq!((routers.in_flight, routers.waiting), (4.0, 2.0));
        assert_eq!(routers.ttft.quantile(0.5), Some(0.05));
    }

    #[test]
    fn an_agents_queues_add_up_and_the_others_do_not_count() {
        let text = "pdserve_num_queue_reqs 2
pdserve_num_decode_prealloc_queue_reqs 3
pdserve_bootstrap_queue_size 0
pdserve_num_running_reqs 7
";
        let figures = Figures::of(&[mk_scrape("d", false, text)]);
        let worker = &figures.workers["d"];
        assert_eq!(worker.queued, Some(5.0));
        assert_eq!(worker.tpot.quantile(0.95), None);
        assert!(figures.routers.is_none());
    }

    #[test]
    fn a_worker_lacks_slots_where_requests_wait_and_pages_are_free() {
        for (free, queued, token_usage, lacks) in [
            (0, 2, 0.4, Some((64.0, 64.0))),
            (2, 2, 0.4, Some((62.0, 64.0))),
            (4, 2, 0.4, None),
            (0, 0, 0.4, None),
            (0, 2, 0.99, None),
        ] {
            let held = 64 - free;
            let text = format!(
                "pdserve_state_slots{{state=\"free\"}} {free}
pdserve_state_slots{{state=\"held\"}} {held}
pdserve_num_decode_prealloc_queue_reqs {queued}
pdserve_token_usage {token_usage}
"
            );
            let figures = Figures::of(&[mk_scrape("d", false, &text)]);
            assert_eq!(figures.workers["d"].lacks_slots(), lacks, "{text}");
        }
        let dense = "pdserve_num_queue_reqs 2\npdserve_token_usage 0.5\n";
        let figures = Figures::of(&[mk_scrape("d", false, dense)]);
        assert_eq!(figures.workers["d"].lacks_slots(), None);
    }

    #[test]
    fn a_pod_that_does_not_answer_is_named() {
        let silent = Scrape {
            pod: "d".to_owned(),
            is_router: false,
            text: Err("forbidden".to_owned()),
        };
        let figures = Figures::of(&[silent]);
        assert_eq!(figures.silent, [("d".to_owned(), "forbidden".to_owned())]);
        assert!(figures.workers.is_empty());
    }
}
