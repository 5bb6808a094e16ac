//! A manager's metrics, as a scrape sees them.

use crate::TransferMetrics;
use prometheus::Registry;
use prometheus::proto::{Metric, MetricFamily, MetricType};
use std::collections::BTreeSet;

/// A registry that holds one manager's series.
pub(crate) struct Figures(Registry);

impl Figures {
    pub(crate) fn of(metrics: &TransferMetrics) -> Self {
        let registry = Registry::new();
        metrics.register(&registry);
        Self(registry)
    }

    fn families(&self) -> impl Iterator<Item = MetricFamily> {
        self.0.gather().into_iter()
    }

    /// The sum over the series that have these labels, of a histogram's its observations; `None` if
    /// there is no such series.
    pub(crate) fn get(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let name = format!("pdserve_{name}");
        let family = self.families().find(|family| family.name() == name)?;
        let kind = family.get_field_type();
        let series = family.get_metric().iter();
        let series = series.filter(|metric| labels.iter().all(|label| has(metric, *label)));
        let values: Vec<f64> = series.map(|metric| value(metric, kind)).collect();
        (!values.is_empty()).then(|| values.iter().sum())
    }

    /// All values of a label.
    pub(crate) fn values_of(&self, label: &str) -> BTreeSet<String> {
        let families: Vec<MetricFamily> = self.families().collect();
        let series = families.iter().flat_map(MetricFamily::get_metric);
        let labels = series.flat_map(Metric::get_label);
        let named = labels.filter(|pair| pair.name() == label);
        named.map(|pair| pair.value().to_owned()).collect()
    }
}

fn has(metric: &Metric, (name, value): (&str, &str)) -> bool {
    let mut labels = metric.get_label().iter();
    labels.any(|label| label.name() == name && label.value() == value)
}

fn value(metric: &Metric, kind: MetricType) -> f64 {
    match kind {
        MetricType::COUNTER => metric.get_counter().get_value(),
        MetricType::GAUGE => metric.get_gauge().get_value(),
        MetricType::HISTOGRAM => metric.get_histogram().get_sample_count() as f64,
        MetricType::SUMMARY | MetricType::UNTYPED => unreachable!("there are none"),
    }
}
