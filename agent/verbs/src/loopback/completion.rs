//! A completion queue of the fabric, and the channel that delivers its events.

use super::event_queue::EventQueue;
use super::objects::{ChannelId, ContextId, CqId, Kept, QpId};
use super::queue_pair::Position;
use crate::ffi;
use crate::status::WcStatus;
use std::collections::VecDeque;

/// `IBV_WC_WITH_IMM`.
const WITH_IMMEDIATE: u32 = 1 << 1;
/// What a failed request's completion holds in fields that the specification leaves undefined.
const NOISE: u32 = 0xdead_beef;

pub(super) struct Channel {
    pub(super) context: ContextId,
    pub(super) events: EventQueue<(CqId, Kept<ffi::Cq>)>,
}

pub(super) struct Cq {
    pub(super) context: ContextId,
    pub(super) channel: Option<ChannelId>,
    /// As its events name it.
    pub(super) raw: Kept<ffi::Cq>,
    depth: usize,
    entries: VecDeque<Entry>,
    pub(super) is_armed: bool,
    /// Events that were taken but not acknowledged.
    pub(super) unacknowledged: u32,
}

/// A completion, and the entries in its queue pair that polling it frees.
pub(super) struct Entry {
    pub(super) qp: QpId,
    pub(super) position: Position,
    pub(super) wr_id: u64,
    pub(super) outcome: Outcome,
}

#[derive(Clone, Copy)]
pub(super) enum Outcome {
    Written,
    Immediate {
        /// In network byte order.
        immediate: u32,
        bytes: u32,
        src_qp_num: u32,
    },
    Failed(WcStatus),
}

// === impl Cq ===

impl Cq {
    pub(super) fn new(
        context: ContextId,
        channel: Option<ChannelId>,
        raw: Kept<ffi::Cq>,
        depth: usize,
    ) -> Self {
        Self {
            context,
            channel,
            raw,
            depth,
            entries: VecDeque::new(),
            is_armed: false,
            unacknowledged: 0,
        }
    }

    /// # Panics
    /// The queue is full: hardware would now lose completions, and the owner of the queue has
    /// miscounted.
    pub(super) fn push(&mut self, entry: Entry) {
        assert!(
            self.entries.len() < self.depth,
            "a loopback completion queue of {} entries overflows: its queue pairs may hold more \
             requests than it has entries, or it is not polled",
            self.depth
        );
        self.entries.push_back(entry);
    }

    pub(super) fn pop(&mut self) -> Option<Entry> {
        self.entries.pop_front()
    }

    /// Completions of a destroyed queue pair belong to no one.
    pub(super) fn forget(&mut self, qp: QpId) {
        self.entries.retain(|entry| entry.qp != qp);
    }
}

// === impl Entry ===

impl Entry {
    pub(super) fn to_wc(&self) -> ffi::Wc {
        let failed = ffi::Wc {
            wr_id: self.wr_id,
            status: ffi::IBV_WC_SUCCESS,
            opcode: NOISE,
            vendor_err: 0,
            byte_len: NOISE,
            imm_data: NOISE,
            qp_num: self.qp.num,
            src_qp: NOISE,
            wc_flags: 0,
            pkey_index: 0,
            slid: 0,
            sl: 0,
            dlid_path_bits: 0,
        };
        match self.outcome {
            Outcome::Written => ffi::Wc {
                opcode: ffi::IBV_WC_RDMA_WRITE,
                ..failed
            },
            Outcome::Immediate {
                immediate,
                bytes,
                src_qp_num,
            } => ffi::Wc {
                opcode: ffi::IBV_WC_RECV_RDMA_WITH_IMM,
                byte_len: bytes,
                imm_data: immediate,
                src_qp: src_qp_num,
                wc_flags: WITH_IMMEDIATE,
                ..failed
            },
            Outcome::Failed(WcStatus(status)) => ffi::Wc { status, ..failed },
        }
    }
}
