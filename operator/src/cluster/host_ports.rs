//! Ports for workers that share their nodes' network.
//!
//! The scheduler puts no two pods that want the same port on one node. So that several fit on one,
//! each worker gets the block of ports that the fewest others have.

use super::children::Children;
use kube::ResourceExt;
use parking_lot::Mutex;
use pd_crds::pod::Pod;
use pd_protocol::labels;
use pd_protocol::ports::WorkerPorts;
use std::collections::HashMap;
use std::fmt::{self, Display, Formatter};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;
use tokio::time::Instant;

/// After this long a pod is in the watch, or was not made.
const UNSEEN_FOR: Duration = Duration::from_secs(60);

/// Ports from which workers are given theirs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortRange(RangeInclusive<u16>);

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a range is FIRST-LAST, such as 21000-24999, and has room for {} ports",
    WorkerPorts::BLOCK
)]
pub(crate) struct PortRangeError;

#[derive(Debug)]
#[cfg_attr(test, derive(Default))]
pub(crate) struct HostPorts {
    range: PortRange,
    /// Where the blocks begin of pods that the watch has not reported yet, by the pod.
    unseen: Mutex<HashMap<Name, (u16, Instant)>>,
}

/// Namespace and name.
type Name = (String, String);

// === impl HostPorts ===

impl HostPorts {
    pub(crate) fn new(range: PortRange) -> Self {
        Self {
            range,
            unseen: Mutex::default(),
        }
    }

    /// A block for a pod that is about to be made; the same if it is asked for again.
    pub(crate) fn give(&self, namespace: &str, name: &str, pods: &Children<Pod>) -> WorkerPorts {
        let now = Instant::now();
        let mut unseen = self.unseen.lock();
        let mut taken: HashMap<u16, usize> = HashMap::new();
        pods.each(|pod| {
            let first = pod.annotations().get(labels::FIRST_PORT);
            if let Some(first) = first.and_then(|first| first.parse().ok()) {
                *taken.entry(self.range.block_of(first)).or_default() += 1;
                unseen.remove(&(pod.namespace().unwrap_or_default(), pod.name_any()));
            }
        });
        unseen.retain(|_, (_, given)| now.duration_since(*given) < UNSEEN_FOR);
        for (first, _) in unseen.values() {
            *taken.entry(*first).or_default() += 1;
        }
        let of = (namespace.to_owned(), name.to_owned());
        let (first, _) = *unseen.entry(of).or_insert_with(|| {
            let others = |first: &u16| taken.get(first).copied().unwrap_or(0);
            let first = self.range.blocks().min_by_key(others);
            (first.expect("a range has room for a block"), now)
        });
        WorkerPorts::block(first)
    }
}

// === impl PortRange ===

impl PortRange {
    /// First ports of the blocks in it.
    fn blocks(&self) -> impl Iterator<Item = u16> {
        let last = *self.0.end() - (WorkerPorts::BLOCK - 1);
        (*self.0.start()..=last).step_by(usize::from(WorkerPorts::BLOCK))
    }

    /// The block that holds a port; pods of earlier operators have blocks that begin between.
    fn block_of(&self, port: u16) -> u16 {
        let ahead = port.saturating_sub(*self.0.start());
        port - ahead % WorkerPorts::BLOCK
    }
}

impl Default for PortRange {
    /// Above what daemons listen on, below node ports and what kernels give to connections.
    fn default() -> Self {
        Self(21000..=24999)
    }
}

impl FromStr for PortRange {
    type Err = PortRangeError;

    fn from_str(text: &str) -> Result<Self, PortRangeError> {
        let (first, last) = text.split_once('-').ok_or(PortRangeError)?;
        let parse = |port: &str| port.trim().parse::<u16>().map_err(|_| PortRangeError);
        let (first, last) = (parse(first)?, parse(last)?);
        let has_room = first > 0 && last >= first && last - first >= WorkerPorts::BLOCK - 1;
        has_room.then_some(Self(first..=last)).ok_or(PortRangeError)
    }
}

impl Display for PortRange {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.0.start(), self.0.end())
    }
}

#[cfg(test)]
mod tests {
    //! Facts about ports that workers are given.

    use super::*;
    use serde_json::json;

    fn mk_pods(firsts: &[u16]) -> Children<Pod> {
        let pods = firsts.iter().enumerate().map(|(nr, first)| {
            let metadata = json!({
                "name": format!("old-{nr}"), "namespace": "ns",
                "labels": {labels::DEPLOYMENT: "d"},
                "annotations": {labels::FIRST_PORT: first.to_string()},
            });
            serde_json::from_value(json!({"metadata": metadata})).expect("a Pod")
        });
        Children::from_iter(pods)
    }

    #[test]
    fn each_worker_has_a_block_of_its_own_while_there_are_any() {
        let ports = HostPorts::new("100-147".parse().expect("a range"));
        let give = |name: &str, pods: &[u16]| ports.give("ns", name, &mk_pods(pods)).http;
        assert_eq!(give("a", &[100]), 116);
        assert_eq!(give("a", &[100]), 116, "asked for again");
        assert_eq!(give("b", &[104]), 132);
        assert_eq!(
            give("c", &[100]),
            100,
            "none is left: it shares, on another node"
        );
        assert_eq!(give("d", &[100, 100, 116, 132]), 116);
    }

    #[test]
    fn a_range_without_room_is_refused() {
        for wrong in ["", "21000", "21000-21014", "0-20", "9-5", "1-70000", "a-b"] {
            assert_eq!(wrong.parse::<PortRange>(), Err(PortRangeError), "{wrong}");
        }
        let range: PortRange = "65520-65535".parse().expect("a range");
        assert_eq!(range.blocks().collect::<Vec<_>>(), [65520]);
        assert_eq!(PortRange::default().to_string(), "21000-24999");
    }
}
