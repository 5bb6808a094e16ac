//! Prometheus text, read back: the sum of a metric over its series.

use crate::client::Client;
use anyhow::{Context, Result};
use std::collections::BTreeMap;

/// Metrics of one process at one moment: series name with labels → value.
#[derive(Debug)]
pub struct Metrics(BTreeMap<String, f64>);

// === impl Metrics ===

impl Metrics {
    /// # Errors
    /// When `/metrics` does not answer, or a line is not `series value`.
    pub async fn scrape(client: &Client, base: &str) -> Result<Self> {
        Self::parse(&client.get(&format!("{base}/metrics")).await?.text())
    }

    /// # Errors
    /// When a line is not `series value`.
    pub fn parse(text: &str) -> Result<Self> {
        let series = text
            .lines()
            .filter(|line| !line.starts_with('#') && !line.is_empty());
        let parsed = series.map(|line| {
            let (name, value) = line
                .rsplit_once(' ')
                .with_context(|| format!("line {line}"))?;
            Ok((
                name.to_owned(),
                value.parse().with_context(|| format!("line {line}"))?,
            ))
        });
        Ok(Self(parsed.collect::<Result<_>>()?))
    }

    /// Sum over all series named `name` whose labels contain every text of `labels`.
    pub fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        let of_name = |series: &str| {
            series
                .strip_prefix(name)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('{'))
        };
        self.0
            .iter()
            .filter(|(series, _)| of_name(series) && labels.iter().all(|l| series.contains(l)))
            .map(|(_, value)| value)
            .sum()
    }

    pub fn has(&self, name: &str) -> bool {
        self.0
            .keys()
            .any(|series| series.split('{').next() == Some(name))
    }
}
