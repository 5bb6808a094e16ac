//! GPUs as metric families: DCGM exporter's names, units and labels, and our own health verdict.

use super::Gpu;
use super::field::{Field, Kind};
use super::health::Fault;
use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{CounterVec, GaugeVec, Opts};
use std::collections::HashMap;

/// Where this process runs, as labels of every GPU's series.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InstanceLabels(HashMap<String, String>);

/// The operator sets these in containers.
const NODE_NAME: &str = "NODE_NAME";
const POD_NAME: &str = "POD_NAME";
const POD_NAMESPACE: &str = "POD_NAMESPACE";
const HOSTNAME_FILE: &str = "/proc/sys/kernel/hostname";

const LABELS: [&str; 5] = ["gpu", "UUID", "pci_bus_id", "device", "modelName"];
const REASON: &str = "reason";

/// One family for each field that at least one GPU reports, then the health verdicts.
pub(crate) fn families(gpus: &[Gpu], place: &InstanceLabels) -> Vec<MetricFamily> {
    let figures = Field::ALL
        .into_iter()
        .map(|field| family(gpus, field, place));
    let all = figures.chain([degraded(gpus, place)]).flatten();
    // Prometheus' text format has no family without series.
    all.filter(|family| !family.get_metric().is_empty())
        .collect()
}

fn family(gpus: &[Gpu], field: Field, place: &InstanceLabels) -> Vec<MetricFamily> {
    let opts = place.opts(field.name(), field.help());
    let reported = gpus.iter().filter_map(|gpu| {
        let value = gpu.fields.get(&field)?;
        Some((labels(gpu), field.in_dcgm_units(*value)))
    });
    match field.kind() {
        Kind::Counter => {
            let family = CounterVec::new(opts, &LABELS).expect("name and labels are valid");
            reported.for_each(|(labels, value)| family.with_label_values(&labels).inc_by(value));
            family.collect()
        }
        Kind::Gauge => {
            let family = GaugeVec::new(opts, &LABELS).expect("name and labels are valid");
            reported.for_each(|(labels, value)| family.with_label_values(&labels).set(value));
            family.collect()
        }
    }
}

/// For each GPU and each fault that it reports on, whether it has it.
fn degraded(gpus: &[Gpu], place: &InstanceLabels) -> Vec<MetricFamily> {
    let help = "1 if the GPU is degraded for the reason";
    let opts = place.opts("pdserve_gpu_degraded", help);
    let names: Vec<&str> = LABELS.into_iter().chain([REASON]).collect();
    let family = GaugeVec::new(opts, &names).expect("name and labels are valid");
    for gpu in gpus {
        for fault in Fault::ALL {
            let Some(has) = fault.of(gpu) else { continue };
            let labels = labels(gpu).into_iter().chain([fault.as_str().to_owned()]);
            let labels: Vec<String> = labels.collect();
            family
                .with_label_values(&labels)
                .set(f64::from(u8::from(has)));
        }
    }
    family.collect()
}

/// The values of [`LABELS`].
fn labels(gpu: &Gpu) -> [String; 5] {
    let identity = gpu.identity.clone();
    let device = identity.minor.map(|minor| format!("nvidia{minor}"));
    [
        identity.index.to_string(),
        identity.uuid,
        identity.pci_bus_id,
        device.unwrap_or_default(),
        identity.model,
    ]
}

// === impl InstanceLabels ===

impl InstanceLabels {
    /// Reads the environment, or asks the kernel where a variable is not set.
    pub(crate) fn here() -> Self {
        let var = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let kernel = || std::fs::read_to_string(HOSTNAME_FILE).ok();
        let host = var(NODE_NAME).or_else(kernel);
        Self::new(host, var(POD_NAMESPACE), var(POD_NAME))
    }

    fn new(host: Option<String>, namespace: Option<String>, pod: Option<String>) -> Self {
        let known = [("Hostname", host), ("namespace", namespace), ("pod", pod)];
        let known = known.into_iter().filter_map(|(name, value)| {
            let value = value?.trim().to_owned();
            Some((name.to_owned(), value))
        });
        Self(known.collect())
    }

    fn opts(&self, name: &str, help: &str) -> Opts {
        Opts::new(name, help).const_labels(self.0.clone())
    }
}

#[cfg(test)]
mod tests;
