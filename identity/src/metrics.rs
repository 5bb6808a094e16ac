//! The keys of a process as series, so that others see which it verifies with and which one signs.

use crate::identity::WeakIdentity;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntGaugeVec, Opts};

/// `PREFIX_peer_key_info{key_id,use}`, as long as the identity lasts.
pub(crate) struct KeyInfo {
    opts: Opts,
    /// Says what is collected.
    gauge: IntGaugeVec,
    identity: WeakIdentity,
}

// === impl KeyInfo ===

impl KeyInfo {
    pub(crate) fn new(prefix: &str, identity: WeakIdentity) -> Self {
        let name = format!("{prefix}_peer_key_info");
        let help = "Keys that this process and its peers know each other by: the one that signs, and those that only \
                    verify";
        let opts = Opts::new(name, help);
        Self {
            gauge: gauge(&opts),
            opts,
            identity,
        }
    }
}

fn gauge(opts: &Opts) -> IntGaugeVec {
    let gauge = IntGaugeVec::new(opts.clone(), &["key_id", "use"]);
    gauge.expect("the prefix is part of a name")
}

impl Collector for KeyInfo {
    fn desc(&self) -> Vec<&Desc> {
        self.gauge.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        // A new one each time: one that is shared would show none for a moment while it is filled.
        let now = gauge(&self.opts);
        let keys = self.identity.upgrade().map(|identity| identity.key_ids());
        for (id, key_use) in keys.into_iter().flatten() {
            let labels = [&*id.to_string(), key_use.as_str()];
            now.with_label_values(&labels).set(1);
        }
        now.collect()
    }
}

#[cfg(test)]
mod tests;
