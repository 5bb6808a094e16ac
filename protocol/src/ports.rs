//! Well-known ports and reserved addresses. Every worker has an address of its own, so all
//! workers share these numbers; those that share their node's address have numbers of their own.

use crate::labels;
use std::collections::BTreeMap;

/// Client-facing HTTP of routers and agents; SGLang's default.
pub const HTTP: u16 = 30000;
/// Bootstrap server beside prefill; SGLang's `--disaggregation-bootstrap-port`.
pub const BOOTSTRAP: u16 = 8998;
/// Admin API of routers and agents (cordon, drain, timelines): outside the Service, behind a token.
pub const ADMIN: u16 = 30900;
/// Where the nodes of a replica meet (`--dist-init-addr`); PyTorch's default.
pub const RENDEZVOUS: u16 = 29500;
/// SGLang's `FAKE_BOOTSTRAP_HOST`: a request with this `bootstrap_host` uses the fake transfer
/// backend. Source: docs/sglang-protocol.md#fake-transfers.
pub const FAKE_BOOTSTRAP_HOST: &str = "2.2.2.2";

/// The default admin port of a program whose API listens on port `http`: as far above it as [`ADMIN`]
/// is above [`HTTP`], so that a router and agents that differ by `--port` alone, as in SGLang's scripts,
/// do not collide. `None` above 65535; 0, a port that the kernel chooses, gives 0.
pub fn admin_beside(http: u16) -> Option<u16> {
    match http {
        0 => Some(0),
        http => http.checked_add(ADMIN - HTTP),
    }
}

/// Ports of one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerPorts {
    pub http: u16,
    pub admin: u16,
    pub bootstrap: u16,
    pub rendezvous: u16,
}

// === impl WorkerPorts ===

impl WorkerPorts {
    /// Of a worker that has an address of its own.
    pub const WELL_KNOWN: Self = Self {
        http: HTTP,
        admin: ADMIN,
        bootstrap: BOOTSTRAP,
        rendezvous: RENDEZVOUS,
    };
    /// Ports that a worker takes: beside those that are named, SGLang takes six beyond the rendezvous, and vLLM one beyond the
    /// bootstrap's for each further data-parallel rank.
    pub const BLOCK: u16 = 16;
    /// Last port at which a block can begin.
    pub const FIRST_MAX: u16 = u16::MAX - (Self::BLOCK - 1);

    /// A block of a worker's own, which begins at `first`, at most [`FIRST_MAX`](Self::FIRST_MAX).
    pub const fn block(first: u16) -> Self {
        Self {
            http: first,
            admin: first + 1,
            bootstrap: first + 2,
            rendezvous: first + 3,
        }
    }

    /// As a pod's annotations say.
    pub fn of(annotations: &BTreeMap<String, String>) -> Self {
        let first = annotations.get(labels::FIRST_PORT);
        let first = first.and_then(|first| first.parse().ok());
        first
            .filter(|first| (1..=Self::FIRST_MAX).contains(first))
            .map_or(Self::WELL_KNOWN, Self::block)
    }
}

#[cfg(test)]
mod tests {
    //! Facts about blocks of ports.

    use super::*;

    #[test]
    fn a_pod_says_where_its_block_begins() {
        let of = |first: &str| {
            let annotation = (labels::FIRST_PORT.to_owned(), first.to_owned());
            WorkerPorts::of(&BTreeMap::from([annotation]))
        };
        assert_eq!(of("21004"), WorkerPorts::block(21004));
        assert_eq!(of("65520"), WorkerPorts::block(65520));
        for wrong in ["0", "65521", "70000", "-1", "x", ""] {
            assert_eq!(of(wrong), WorkerPorts::WELL_KNOWN, "{wrong}");
        }
        assert_eq!(WorkerPorts::of(&BTreeMap::new()), WorkerPorts::WELL_KNOWN);
    }
}
