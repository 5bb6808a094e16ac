//! How good the paths between hosts are, and which are cut.

use super::HostId;
use rand::RngExt;
use rand::rngs::StdRng;
use std::collections::BTreeMap;
use std::time::Duration;

/// Of a path in one direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkQuality {
    pub(crate) latency: Duration,
    /// Beyond the latency, at most.
    pub(crate) jitter: Duration,
    /// Share of packets that are sent again.
    pub(crate) loss: f64,
    /// Of each connection.
    pub(crate) bytes_per_sec: u32,
}

#[derive(Debug)]
pub(crate) struct Links {
    usual: LinkQuality,
    /// Of paths that are worse at present.
    worse: BTreeMap<(HostId, HostId), LinkQuality>,
    cut: BTreeMap<(HostId, HostId), Duration>,
    pub(crate) piece_bytes_max: usize,
    /// Share of packets and reads that are shorter than they could be.
    pub(crate) short_share: f64,
}

/// Until a packet is sent again. Source: RFC 6298, Linux's least.
const RETRANSMISSION: Duration = Duration::from_millis(200);
/// Between two processes of one host.
const LOOPBACK: LinkQuality = LinkQuality {
    latency: Duration::from_micros(20),
    jitter: Duration::ZERO,
    loss: 0.0,
    bytes_per_sec: 1 << 30,
};

// === impl LinkQuality ===

impl LinkQuality {
    pub(super) fn draw(&self, rng: &mut StdRng) -> Duration {
        let jitter = self.jitter.mul_f64(rng.random());
        let mut delay = self.latency + jitter;
        let mut wait = RETRANSMISSION;
        while rng.random_bool(self.loss) && wait < RETRANSMISSION * 8 {
            delay += wait;
            wait *= 2;
        }
        delay
    }

    /// How long a connection is busy with so many bytes.
    pub(super) fn busy(&self, bytes: usize) -> Duration {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        Duration::from_secs(1) * bytes / self.bytes_per_sec
    }
}

// === impl Links ===

impl Links {
    pub(crate) fn new(usual: LinkQuality, piece_bytes_max: usize, short_share: f64) -> Self {
        Self {
            usual,
            worse: BTreeMap::new(),
            cut: BTreeMap::new(),
            piece_bytes_max,
            short_share,
        }
    }

    pub(super) fn quality(&self, from: HostId, to: HostId) -> LinkQuality {
        if from == to {
            return LOOPBACK;
        }
        *self.worse.get(&(from, to)).unwrap_or(&self.usual)
    }

    pub(super) fn cut_since(&self, from: HostId, to: HostId) -> Option<Duration> {
        self.cut.get(&(from, to)).copied()
    }

    pub(crate) fn worsen(&mut self, from: HostId, to: HostId, quality: LinkQuality) {
        self.worse.insert((from, to), quality);
    }

    pub(crate) fn cut(&mut self, from: HostId, to: HostId, now: Duration) {
        self.cut.entry((from, to)).or_insert(now);
    }

    pub(crate) fn mend(&mut self, from: HostId, to: HostId) {
        self.worse.remove(&(from, to));
        self.cut.remove(&(from, to));
    }

    pub(crate) fn mend_all(&mut self) {
        self.worse.clear();
        self.cut.clear();
    }
}
