//! Names of completion statuses, and what to check when one of them ends a transfer.

use std::fmt;

/// The status of a completion (`enum ibv_wc_status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WcStatus(pub u32);

/// Name and advice by code.
pub(crate) const NAMES: [(&str, &str); 24] = [
    ("IBV_WC_SUCCESS", "nothing is wrong"),
    (
        "IBV_WC_LOC_LEN_ERR",
        "a message is longer than the port allows or than its receive",
    ),
    (
        "IBV_WC_LOC_QP_OP_ERR",
        "the device cannot carry this out: the request exceeds its limits, or its network interface \
         is gone",
    ),
    ("IBV_WC_LOC_EEC_OP_ERR", UNUSED),
    (
        "IBV_WC_LOC_PROT_ERR",
        "a local range lies outside its memory region, or the region is gone or in another \
         protection domain",
    ),
    (
        "IBV_WC_WR_FLUSH_ERR",
        "the queue pair had failed before this request; the first error on it is the cause",
    ),
    ("IBV_WC_MW_BIND_ERR", UNUSED),
    (
        "IBV_WC_BAD_RESP_ERR",
        "the peer sent an invalid answer; check its firmware and its log",
    ),
    (
        "IBV_WC_LOC_ACCESS_ERR",
        "a peer wrote to a local region that is not registered for it",
    ),
    (
        "IBV_WC_REM_INV_REQ_ERR",
        "the peer refused the request: its receive queue or queue pair does not accept such writes",
    ),
    (
        "IBV_WC_REM_ACCESS_ERR",
        "the peer refused the address or the key: the write leaves its region, the key is old, or \
         the region is not open to writes",
    ),
    (
        "IBV_WC_REM_OP_ERR",
        "the peer's device could not finish; check the peer's errors",
    ),
    (
        "IBV_WC_RETRY_EXC_ERR",
        "the peer does not answer: check its process, link and cable, the switch, and that path \
         MTU and GIDs of both ends agree",
    ),
    (
        "IBV_WC_RNR_RETRY_EXC_ERR",
        "the peer has no receive posted for an immediate; it falls behind or has stopped",
    ),
    ("IBV_WC_LOC_RDD_VIOL_ERR", UNUSED),
    ("IBV_WC_REM_INV_RD_REQ_ERR", UNUSED),
    ("IBV_WC_REM_ABORT_ERR", "the peer aborted the operation"),
    ("IBV_WC_INV_EECN_ERR", UNUSED),
    ("IBV_WC_INV_EEC_STATE_ERR", UNUSED),
    (
        "IBV_WC_FATAL_ERR",
        "the device has failed; open it again, or leave it out",
    ),
    (
        "IBV_WC_RESP_TIMEOUT_ERR",
        "the peer began to answer, then stopped",
    ),
    (
        "IBV_WC_GENERAL_ERR",
        "the device reports no reason; see its vendor code and the kernel log",
    ),
    ("IBV_WC_TM_ERR", UNUSED),
    ("IBV_WC_TM_RNDV_INCOMPLETE", UNUSED),
];

const UNUSED: &str =
    "this status belongs to operations that are never posted here; suspect the driver";

// === impl WcStatus ===

impl WcStatus {
    pub const LOC_LEN_ERR: Self = Self(1);
    pub const LOC_PROT_ERR: Self = Self(4);
    /// Requests queued behind a failed one.
    pub const WR_FLUSH_ERR: Self = Self(5);
    pub const REM_INV_REQ_ERR: Self = Self(9);
    pub const REM_ACCESS_ERR: Self = Self(10);
    pub const RETRY_EXC_ERR: Self = Self(12);
    pub const RNR_RETRY_EXC_ERR: Self = Self(13);

    fn entry(self) -> Option<&'static (&'static str, &'static str)> {
        NAMES.get(usize::try_from(self.0).ok()?)
    }

    /// The name in `infiniband/verbs.h`.
    pub fn name(self) -> &'static str {
        self.entry().map_or("IBV_WC_?", |&(name, _)| name)
    }

    /// What to check.
    pub fn advice(self) -> &'static str {
        let unknown = "this status is newer than this program; suspect the driver";
        self.entry().map_or(unknown, |&(_, advice)| advice)
    }
}

impl fmt::Display for WcStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.0)
    }
}

#[cfg(test)]
mod tests;
