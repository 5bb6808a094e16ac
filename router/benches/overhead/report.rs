//! Samples and their summary: medians over the rounds, and what a router adds to the
//! latency of clients that ask the workers themselves.

use crate::load::Measured;
use serde::Serialize;
use std::time::Duration;

/// One measurement of one target.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Sample {
    requests_per_s: f64,
    p50_us: f64,
    p99_us: f64,
    first_byte_p50_us: f64,
    cpu_us_per_request: f64,
    rss_mib: u64,
}

#[derive(Serialize)]
struct Row {
    case: &'static str,
    target: String,
    round: usize,
    #[serde(flatten)]
    sample: Sample,
}

#[derive(Serialize)]
pub(crate) struct Report {
    router_has_a_core_of_its_own: bool,
    load_average_at_start: String,
    samples: Vec<Row>,
}

// === impl Sample ===

impl Sample {
    #[expect(clippy::cast_precision_loss, reason = "shown with few digits")]
    pub(crate) fn new(measured: &Measured, seconds: f64, cpu: Duration, rss_mib: u64) -> Self {
        let requests = measured.total_us.len() as f64;
        Self {
            requests_per_s: requests / seconds,
            p50_us: quantile(&measured.total_us, 0.5),
            p99_us: quantile(&measured.total_us, 0.99),
            first_byte_p50_us: quantile(&measured.first_us, 0.5),
            cpu_us_per_request: cpu.as_secs_f64() * 1e6 / requests,
            rss_mib,
        }
    }
}

// === impl Report ===

impl Report {
    pub(crate) fn new(router_has_a_core_of_its_own: bool) -> Self {
        Self {
            router_has_a_core_of_its_own,
            load_average_at_start: std::fs::read_to_string("/proc/loadavg")
                .map(|text| text.trim().to_owned())
                .unwrap_or_default(),
            samples: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, case: &'static str, target: &str, round: usize, sample: Sample) {
        let target = target.to_owned();
        self.samples.push(Row {
            case,
            target,
            round,
            sample,
        });
    }

    pub(crate) fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("numbers and names are JSON")
    }

    /// A table of each case.
    pub(crate) fn table(&self) -> String {
        let mut text = format!(
            "load average at the start: {}\n",
            self.load_average_at_start
        );
        if !self.router_has_a_core_of_its_own {
            text += "there is one core only: routers, workers and clients share it\n";
        }
        let mut cases: Vec<&str> = self.samples.iter().map(|row| row.case).collect();
        cases.dedup();
        let mut seen: Vec<&str> = Vec::new();
        for case in cases {
            if !seen.contains(&case) {
                seen.push(case);
                text += &self.case_table(case);
            }
        }
        text
    }

    fn case_table(&self, case: &str) -> String {
        let mut text = format!(
            "\n{case:<32} {:>9} {:>8} {:>8} {:>9} {:>9} {:>8} {:>10} {:>5}\n",
            "CPU µs", "p50 µs", "p99 µs", "added p50", "added p99", "first µs", "requests/s", "MiB",
        );
        let mut targets: Vec<&str> = Vec::new();
        for row in self.samples.iter().filter(|row| row.case == case) {
            if !targets.contains(&row.target.as_str()) {
                targets.push(&row.target);
            }
        }
        let floor = |of: fn(&Sample) -> f64| self.median(case, targets[0], of);
        for target in &targets {
            let median = |of: fn(&Sample) -> f64| self.median(case, target, of);
            text += &format!(
                "{target:<32} {:>9.1} {:>8.0} {:>8.0} {:>9.0} {:>9.0} {:>8.0} {:>10.0} {:>5.0}\n",
                median(|sample| sample.cpu_us_per_request),
                median(|sample| sample.p50_us),
                median(|sample| sample.p99_us),
                median(|sample| sample.p50_us) - floor(|sample| sample.p50_us),
                median(|sample| sample.p99_us) - floor(|sample| sample.p99_us),
                median(|sample| sample.first_byte_p50_us),
                median(|sample| sample.requests_per_s),
                median(|sample| sample.rss_mib as f64),
            );
        }
        text
    }

    fn median(&self, case: &str, target: &str, of: fn(&Sample) -> f64) -> f64 {
        let rows = self.samples.iter();
        let mine = rows.filter(|row| row.case == case && row.target == target);
        let mut values: Vec<f64> = mine.map(|row| of(&row.sample)).collect();
        values.sort_unstable_by(f64::total_cmp);
        values[values.len() / 2]
    }
}

/// Of sorted values.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an index near the quantile will do"
)]
fn quantile(sorted: &[u128], share: f64) -> f64 {
    let idx = (sorted.len() as f64 * share) as usize;
    sorted.get(idx).copied().unwrap_or_default() as f64
}
