//! Prometheus text: its samples, and histograms of them. A line that is no sample is passed over:
//! a screen with fewer figures is better than none.

use std::cmp::Ordering;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample<'a> {
    pub(crate) name: &'a str,
    labels: Vec<(&'a str, String)>,
    pub(crate) value: f64,
}

/// Observations by upper bounds, of one process or of several with the same bounds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Histogram {
    /// Upper bound, and how many observations are not above it.
    buckets: Vec<(f64, f64)>,
}

pub(crate) fn parse(text: &str) -> Vec<Sample<'_>> {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Sample<'_>> {
    let line = line.trim();
    if line.starts_with('#') {
        return None;
    }
    let (name, rest) = line.split_at(line.find(['{', ' ', '\t'])?);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => parse_labels(rest)?,
        None => (Vec::new(), rest),
    };
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(Sample {
        name,
        labels,
        value,
    })
}

type Labels<'a> = Vec<(&'a str, String)>;

/// Labels up to the closing brace, and what follows it.
fn parse_labels(mut rest: &str) -> Option<(Labels<'_>, &str)> {
    let mut labels = Vec::new();
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, quoted) = rest.split_once("=\"")?;
        let (value, after) = unquote(quoted)?;
        labels.push((name, value));
        rest = after;
    }
}

/// A value up to its closing quote, and what follows it.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                escaped => value.push(escaped),
            },
            c => value.push(c),
        }
    }
    None
}

// === impl Sample ===

impl Sample<'_> {
    pub(crate) fn label(&self, name: &str) -> Option<&str> {
        let mut labels = self.labels.iter();
        let (_, value) = labels.find(|(label, _)| *label == name)?;
        Some(value)
    }
}

// === impl Histogram ===

impl Histogram {
    /// Adds the series of `name` with any other labels.
    pub(crate) fn take(&mut self, samples: &[Sample<'_>], name: &str) {
        let is_bucket = |sample: &&Sample<'_>| sample.name.strip_suffix("_bucket") == Some(name);
        for sample in samples.iter().filter(is_bucket) {
            let Some(Ok(bound)) = sample.label("le").map(str::parse::<f64>) else {
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
    //! Facts about Prometheus text.

    use super::*;

    fn mk_histogram(text: &str) -> Histogram {
        let mut histogram = Histogram::default();
        histogram.take(&parse(text), "t");
        histogram
    }

    #[test]
    fn labels_may_hold_quotes_braces_and_commas() {
        let text = "# TYPE a gauge\na{x=\"q\\\"},{\",y=\"2\"} 3 1700000000\nno sample\nb 1e3\n";
        let samples = parse(text);
        assert_eq!(samples.len(), 2);
        assert_eq!(samples[0].label("x"), Some("q\"},{"));
        assert_eq!(samples[0].label("y"), Some("2"));
        assert_eq!((samples[1].name, samples[1].value), ("b", 1000.0));
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
