//! How many lines were dropped, for `/metrics`.

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntCounter, Opts};

/// Reads the number when it is asked for.
pub(crate) struct DroppedLines {
    opts: Opts,
    /// Says what is collected.
    counter: IntCounter,
}

// === impl DroppedLines ===

impl DroppedLines {
    pub(crate) fn new(prefix: &str) -> Self {
        let name = format!("{prefix}_log_lines_dropped_total");
        let help = "Lines that were dropped because standard error or output did not take them";
        let opts = Opts::new(name, help);
        Self {
            counter: counter(&opts),
            opts,
        }
    }
}

fn counter(opts: &Opts) -> IntCounter {
    IntCounter::with_opts(opts.clone()).expect("the name is well-formed")
}

impl Collector for DroppedLines {
    fn desc(&self) -> Vec<&Desc> {
        self.counter.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        // A new one each time: two that ask at once would count a shared one up twice.
        let now = counter(&self.opts);
        now.inc_by(crate::dropped_lines());
        now.collect()
    }
}
