//! Histograms of samples.

use pd_protocol::exposition::Sample;
use std::cmp::Ordering;

/// Observations by upper bounds, of one process or of several with the same bounds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Histogram {
    /// Upper bound, and how many observations are not above it.
    buckets: Vec<(f64, f64)>,
}

// === impl Histogram ===

impl Histogram {
    /// Adds the series of `name` with any other labels.
    pub(crate) fn take(&mut self, samples: &[Sample<'_>], name: &str) {
        let is_bucket = |sample: &&Sample<'_>| sample.name.strip_suffix("_bucket") == Some(name);
        for sample in samples.iter().filter(is_bucket) {
            let bound = sample.label("le").map(|bound| bound.parse::<f64>());
            let Some(Ok(bound)) = bound else {
                continue;
            };
            let by_bound = |(known, _): &(f64, f64)| known.total_cmp(&bound);
            match self.buckets.binary_search_by(by_bound) {
                Ok(place) => self.buckets[place].1 += sample.value,
                Err(place) => self.buckets.insert(place, (bound, sample.value)),
            }
        }
    }

    /// The value that a share `q` of all observations does not exceed, as Prometheus'
    /// `histogram_quantile` interpolates it; nothing without observations.
    pub(crate) fn quantile(&self, q: f64) -> Option<f64> {
        let (_, all) = *self.buckets.last()?;
        let rank = q * all;
        if rank.partial_cmp(&0.0) != Some(Ordering::Greater) {
            return None;
        }
        let place = self.buckets.iter().position(|(_, count)| *count >= rank)?;
        let (bound, count) = self.buckets[place];
        let below = place.checked_sub(1).map(|place| self.buckets[place]);
        let (lower, count_below) = below.unwrap_or((0.0, 0.0));
        if bound.is_infinite() {
            return Some(lower);
        }
        Some(lower + (bound - lower) * (rank - count_below) / (count - count_below))
    }
}

#[cfg(test)]
mod tests {
    //! Facts about histograms.

    use super::*;
    use pd_protocol::exposition::samples;

    fn mk_histogram(text: &str) -> Histogram {
        let mut histogram = Histogram::default();
        let samples: Vec<_> = samples(text).flatten().collect();
        histogram.take(&samples, "t");
        histogram
    }

    #[test]
    fn a_quantile_lies_within_its_bucket() {
        let text = "t_bucket{le=\"0.1\"} 50\nt_bucket{le=\"0.2\"} 90\nt_bucket{le=\"+Inf\"} 100\nt_count 100\n";
        let histogram = mk_histogram(text);
        assert_eq!(histogram.quantile(0.25), Some(0.05));
        let p70 = histogram.quantile(0.7).expect("there are observations");
        assert!((p70 - 0.15).abs() < 1e-9, "{p70}");
        assert_eq!(histogram.quantile(0.95), Some(0.2));
    }

    #[test]
    fn nothing_observed_has_no_quantile() {
        assert_eq!(mk_histogram("").quantile(0.5), None);
        let empty = "t_bucket{le=\"0.1\"} 0\nt_bucket{le=\"+Inf\"} 0\n";
        assert_eq!(mk_histogram(empty).quantile(0.5), None);
        assert_eq!(
            mk_histogram("t_bucket{le=\"+Inf\"} NaN").quantile(0.5),
            None
        );
    }
}
