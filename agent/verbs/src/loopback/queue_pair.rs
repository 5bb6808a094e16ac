//! A queue pair of the fabric: its two work queues, its state, and its peer.

use super::objects::{ContextId, CqId, DomainId, Kept};
use crate::ffi;
use rustix::io::Errno;
use std::collections::VecDeque;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Reset,
    Init,
    Rtr,
    Rts,
    Error,
}

/// The remote end of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Peer {
    pub(super) gid: [u8; 16],
    pub(super) qp_num: u32,
    /// The expected first packet's number.
    pub(super) psn: u32,
}

/// Sizes, as requested by the caller.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) ranges_max: u32,
    pub(super) inline_bytes_max: u32,
    pub(super) signals_all: bool,
}

pub(super) struct Qp {
    pub(super) context: ContextId,
    pub(super) domain: DomainId,
    /// As its events name it.
    pub(super) raw: Kept<ffi::Qp>,
    pub(super) sizes: Sizes,
    pub(super) state: State,
    pub(super) takes_writes: bool,
    pub(super) peer: Option<Peer>,
    /// Number of its first packet.
    pub(super) psn: u32,
    pub(super) rnr_retries: u8,
    pub(super) sends: WorkQueue<Request>,
    pub(super) receives: WorkQueue<Receive>,
    /// Events that were taken but not acknowledged.
    pub(super) unacknowledged: u32,
}

/// An entry of one of a queue pair's work queues.
#[derive(Clone, Copy)]
pub(super) enum Position {
    Send(u64),
    Receive(u64),
}

/// Waiting requests, and taken entries. As in hardware, an entry is free again only after a
/// completion of its request, or of a later one, was polled.
pub(super) struct WorkQueue<T> {
    pub(super) cq: CqId,
    capacity: u64,
    head: u64,
    tail: u64,
    waiting: VecDeque<(u64, T)>,
}

/// A write.
pub(super) struct Request {
    pub(super) wr_id: u64,
    /// Among all requests of the fabric.
    pub(super) order: u64,
    pub(super) src: Source,
    pub(super) dst_addr: u64,
    pub(super) rkey: u32,
    /// In network byte order.
    pub(super) immediate: Option<u32>,
    pub(super) is_signalled: bool,
}

/// Bytes of a write.
pub(super) enum Source {
    /// Copied when it was posted.
    Inline(Vec<u8>),
    /// Read when it is executed.
    Ranges(Vec<ffi::Sge>),
}

pub(super) struct Receive {
    pub(super) wr_id: u64,
}

// === impl WorkQueue ===

impl<T> WorkQueue<T> {
    pub(super) fn new(cq: CqId, capacity: u32) -> Self {
        Self {
            cq,
            capacity: u64::from(capacity),
            head: 0,
            tail: 0,
            waiting: VecDeque::new(),
        }
    }

    pub(super) fn push(&mut self, request: T) -> Result<(), Errno> {
        if self.head - self.tail >= self.capacity {
            return Err(Errno::NOMEM);
        }
        self.waiting.push_back((self.head, request));
        self.head += 1;
        Ok(())
    }

    pub(super) fn pop(&mut self) -> Option<(u64, T)> {
        self.waiting.pop_front()
    }

    /// Undoes `pop`.
    pub(super) fn put_back(&mut self, position: u64, request: T) {
        self.waiting.push_front((position, request));
    }

    pub(super) fn first(&self) -> Option<&T> {
        self.waiting.front().map(|(_, request)| request)
    }

    pub(super) fn waiting_len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn free_through(&mut self, position: u64) {
        self.tail = self.tail.max(position + 1);
    }

    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }
}

// === impl Qp ===

impl Qp {
    pub(super) fn free_through(&mut self, position: Position) {
        match position {
            Position::Send(position) => self.sends.free_through(position),
            Position::Receive(position) => self.receives.free_through(position),
        }
    }

    /// A step of the state machine, except into the error state, which does more.
    pub(super) fn step(&mut self, attr: &ffi::QpAttr, mask: u32) -> Result<(), Errno> {
        let next = match (self.state, attr.qp_state) {
            (State::Reset, ffi::IBV_QPS_INIT) => State::Init,
            (State::Init, ffi::IBV_QPS_RTR) => State::Rtr,
            (State::Rtr, ffi::IBV_QPS_RTS) => State::Rts,
            _ => return Err(Errno::INVAL),
        };
        if mask & needs(next) != needs(next) {
            return Err(Errno::INVAL);
        }
        match next {
            State::Init if attr.port_num != 1 => return Err(Errno::INVAL),
            State::Init => {
                self.takes_writes = attr.qp_access_flags & ffi::IBV_ACCESS_REMOTE_WRITE != 0;
            }
            // RoCE knows no address but a GID.
            State::Rtr if attr.ah_attr.is_global == 0 || attr.ah_attr.grh.sgid_index != 0 => {
                return Err(Errno::INVAL);
            }
            State::Rtr => {
                self.peer = Some(Peer {
                    gid: attr.ah_attr.grh.dgid.raw,
                    qp_num: attr.dest_qp_num,
                    psn: attr.rq_psn,
                });
            }
            State::Rts => {
                self.psn = attr.sq_psn;
                self.rnr_retries = attr.rnr_retry;
            }
            State::Reset | State::Error => unreachable!("none of the steps above leads there"),
        }
        self.state = next;
        Ok(())
    }
}

/// The attributes that a device requires for a step to a state.
fn needs(next: State) -> u32 {
    let rest = match next {
        State::Reset | State::Error => 0,
        State::Init => ffi::IBV_QP_PKEY_INDEX | ffi::IBV_QP_PORT | ffi::IBV_QP_ACCESS_FLAGS,
        State::Rtr => {
            ffi::IBV_QP_AV
                | ffi::IBV_QP_PATH_MTU
                | ffi::IBV_QP_DEST_QPN
                | ffi::IBV_QP_RQ_PSN
                | ffi::IBV_QP_MAX_DEST_RD_ATOMIC
                | ffi::IBV_QP_MIN_RNR_TIMER
        }
        State::Rts => {
            ffi::IBV_QP_SQ_PSN
                | ffi::IBV_QP_TIMEOUT
                | ffi::IBV_QP_RETRY_CNT
                | ffi::IBV_QP_RNR_RETRY
                | ffi::IBV_QP_MAX_QP_RD_ATOMIC
        }
    };
    rest | ffi::IBV_QP_STATE
}
