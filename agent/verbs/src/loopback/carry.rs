//! Execution of writes: which one is next, what may refuse it, and what a failure ends.
//!
//! 1. `progress` takes the oldest write whose queue pair is not held, until none can proceed.
//! 2. `carry_out` gathers its bytes, finds the peer, and checks what the peer's device would check.
//! 3. It copies, then takes a receive for an immediate, then completes at the sender.
//! 4. A refused write ends its queue pair (`fail`); one that lacks a receive stays queued.

use super::completion::{Entry, Outcome};
use super::fabric::Fabric;
use super::memory::Region;
use super::objects::{QpId, RegionId};
use super::queue_pair::{Position, Qp, Request, Source, State};
use crate::ffi;
use crate::status::WcStatus;
use rustix::io::Errno;
use std::collections::BTreeSet;

/// The longest message, as the port's attributes state it (1 GiB, as hardware has).
pub(super) const MESSAGE_BYTES_MAX: u32 = 1 << 30;

/// The `rnr_retry` value without a limit.
const RETRY_WITHOUT_LIMIT: u8 = 7;

/// Why a write is not executed.
enum Refusal {
    /// It stays first in its queue.
    Waits,
    /// It fails at the sender.
    Failed(WcStatus),
    /// It fails at both ends; the peer receives this event.
    Blamed(WcStatus, QpId, u32),
}

/// Bytes to be copied.
struct Piece {
    start: *const u8,
    len: usize,
}

// === impl Fabric ===

impl Fabric {
    /// Executes all writes that can proceed, oldest first.
    pub(super) fn progress(&mut self) {
        let mut waiting = BTreeSet::new();
        while let Some(id) = self.oldest(&waiting) {
            let Some((position, request)) = self.qp(id).sends.pop() else {
                return;
            };
            match self.carry_out(id, &request) {
                Ok(()) if request.is_signalled => {
                    self.complete_send(id, position, request.wr_id, Outcome::Written);
                }
                Ok(()) => {}
                Err(Refusal::Waits) => {
                    self.qp(id).sends.put_back(position, request);
                    waiting.insert(id);
                }
                Err(Refusal::Failed(status)) => {
                    self.complete_send(id, position, request.wr_id, Outcome::Failed(status));
                    self.fail(id);
                    // Waiters for one of its receives need not wait any longer.
                    waiting.clear();
                }
                Err(Refusal::Blamed(status, peer, event_type)) => {
                    self.complete_send(id, position, request.wr_id, Outcome::Failed(status));
                    self.fail(id);
                    self.notify_of_qp(peer, event_type);
                    self.fail(peer);
                    waiting.clear();
                }
            }
        }
    }

    fn oldest(&self, waiting: &BTreeSet<QpId>) -> Option<QpId> {
        let can_go = |id: &QpId| !waiting.contains(id) && !self.nic(id.nic).is_frozen;
        let qps = self.qps.iter().filter(|(id, _)| can_go(id));
        let firsts = qps.filter_map(|(&id, qp)| Some((qp.sends.first()?.order, id)));
        firsts.min().map(|(_, id)| id)
    }

    fn carry_out(&mut self, id: QpId, request: &Request) -> Result<(), Refusal> {
        let pieces = self.gather(id, &request.src)?;
        let bytes: usize = pieces.iter().map(|piece| piece.len).sum();
        let bytes = u32::try_from(bytes)
            .ok()
            .filter(|&n| n <= MESSAGE_BYTES_MAX);
        let bytes = bytes.ok_or(Refusal::Failed(WcStatus::LOC_LEN_ERR))?;
        let peer = self.connected_peer(id);
        let peer = peer.ok_or(Refusal::Failed(WcStatus::RETRY_EXC_ERR))?;
        let mut dst = self.dst(peer, request, bytes)?;
        if request.immediate.is_some() && self.qp(peer).receives.first().is_none() {
            // Time does not pass here: finite retries have ended.
            return Err(match self.qp(id).rnr_retries {
                RETRY_WITHOUT_LIMIT => Refusal::Waits,
                _ => Refusal::Failed(WcStatus::RNR_RETRY_EXC_ERR),
            });
        }
        for Piece { start, len } in pieces {
            // SAFETY: a source is this request's own copy, which is borrowed, or lies in a region,
            // as the destination does: `gather` and `dst` compared both ranges with their regions.
            // The owner of a region keeps it mapped until it is deregistered, which takes the lock
            // that is held here. The two may overlap, and no reference to either is held.
            unsafe { std::ptr::copy(start, dst, len) };
            dst = dst.wrapping_add(len);
        }
        self.nic_mut(peer.nic).landed += 1;
        if let Some(immediate) = request.immediate {
            self.take_receive(peer, immediate, bytes, id.num);
        }
        Ok(())
    }

    /// The bytes of a write, in regions of its queue pair's domain.
    fn gather(&self, id: QpId, src: &Source) -> Result<Vec<Piece>, Refusal> {
        let ranges = match src {
            Source::Inline(bytes) => {
                let (start, len) = (bytes.as_ptr(), bytes.len());
                return Ok(vec![Piece { start, len }]);
            }
            Source::Ranges(ranges) => ranges,
        };
        let domain = self.qps[&id].domain;
        let piece = |range: &ffi::Sge| {
            let region = self.regions.get(&RegionId::from_lkey(range.lkey)?)?;
            let start = region.at(range.addr, u64::from(range.length))?;
            (region.domain == domain).then_some(Piece {
                start,
                len: range.length as usize,
            })
        };
        let pieces: Option<Vec<Piece>> = ranges.iter().map(piece).collect();
        pieces.ok_or(Refusal::Failed(WcStatus::LOC_PROT_ERR))
    }

    /// The other end, if packets reach it and it accepts them as this one's.
    fn connected_peer(&self, id: QpId) -> Option<QpId> {
        let qp = &self.qps[&id];
        let towards = qp.peer?;
        let nic = self.nic_of(&towards.gid)?;
        let is_up = |nic| !self.nic(nic).is_cut && !self.nic(nic).is_removed;
        let peer_id = QpId {
            nic,
            num: towards.qp_num,
        };
        let peer = self.qps.get(&peer_id)?;
        let back = peer.peer?;
        let is_connected = matches!(peer.state, State::Rtr | State::Rts)
            && back.qp_num == id.num
            && back.gid == self.nic(id.nic).gid
            && back.psn == qp.psn;
        (is_connected && is_up(id.nic) && is_up(nic)).then_some(peer_id)
    }

    /// The destination of a write, if the peer opened it for writing. An empty write has no
    /// destination, and its key is not checked.
    fn dst(&self, peer: QpId, request: &Request, bytes: u32) -> Result<*mut u8, Refusal> {
        let Qp {
            domain,
            takes_writes,
            ..
        } = self.qps[&peer];
        if !takes_writes {
            let (status, event) = (WcStatus::REM_INV_REQ_ERR, ffi::IBV_EVENT_QP_REQ_ERR);
            return Err(Refusal::Blamed(status, peer, event));
        }
        if bytes == 0 {
            return Ok(std::ptr::null_mut());
        }
        let is_open = |region: &&Region| region.domain == domain && region.takes_writes;
        let region = RegionId::from_rkey(request.rkey).and_then(|id| self.regions.get(&id));
        let dst = region
            .filter(is_open)
            .and_then(|region| region.at(request.dst_addr, u64::from(bytes)));
        let (status, event) = (WcStatus::REM_ACCESS_ERR, ffi::IBV_EVENT_QP_ACCESS_ERR);
        dst.ok_or(Refusal::Blamed(status, peer, event))
    }

    fn take_receive(&mut self, id: QpId, immediate: u32, bytes: u32, src_qp_num: u32) {
        let receives = &mut self.qp(id).receives;
        let (position, receive) = receives.pop().expect("it was seen");
        let outcome = Outcome::Immediate {
            immediate,
            bytes,
            src_qp_num,
        };
        self.complete_receive(id, position, receive.wr_id, outcome);
    }

    /// Ends a queue pair: its requests are flushed, and it accepts no more.
    pub(super) fn fail(&mut self, id: QpId) {
        self.qp(id).state = State::Error;
        self.flush(id);
    }

    /// Completes all that a failed queue pair holds.
    pub(super) fn flush(&mut self, id: QpId) {
        let flushed = Outcome::Failed(WcStatus::WR_FLUSH_ERR);
        while let Some((position, request)) = self.qp(id).sends.pop() {
            self.complete_send(id, position, request.wr_id, flushed);
        }
        while let Some((position, receive)) = self.qp(id).receives.pop() {
            self.complete_receive(id, position, receive.wr_id, flushed);
        }
    }

    fn complete_send(&mut self, qp: QpId, position: u64, wr_id: u64, outcome: Outcome) {
        let cq = self.qp(qp).sends.cq;
        let position = Position::Send(position);
        let entry = Entry {
            qp,
            position,
            wr_id,
            outcome,
        };
        self.complete(cq, entry);
    }

    fn complete_receive(&mut self, qp: QpId, position: u64, wr_id: u64, outcome: Outcome) {
        let cq = self.qp(qp).receives.cq;
        let position = Position::Receive(position);
        let entry = Entry {
            qp,
            position,
            wr_id,
            outcome,
        };
        self.complete(cq, entry);
    }

    /// Takes a step of a queue pair's state machine.
    pub(super) fn modify(&mut self, id: QpId, attr: &ffi::QpAttr, mask: u32) -> Result<(), Errno> {
        if mask & ffi::IBV_QP_STATE == 0 {
            return Err(Errno::INVAL);
        }
        match attr.qp_state {
            ffi::IBV_QPS_ERR => self.fail(id),
            _ => self.qp(id).step(attr, mask)?,
        }
        // A peer's write that waits for a receive here may have to fail now.
        self.progress();
        Ok(())
    }
}
