//! Writes as a caller describes them, and the chain of requests that a device reads.

use crate::ffi;
use crate::memory::{LocalRange, ProtectionDomain, RemoteAddr};
use crate::work_queue::Admitted;

/// One write into a peer's memory.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// Gathered in order; all in the queue pair's domain. May be empty, for an immediate without
    /// data.
    pub src: &'a [LocalRange<'a>],
    pub dst: RemoteAddr,
    /// Takes a receive at the peer, which gets this number once all bytes of this write, and of
    /// earlier ones on the queue pair, are in its memory.
    pub immediate: Option<u32>,
    /// Returned with the completion.
    pub tag: u64,
    /// Whether a completion is wanted. It covers all earlier writes of the queue pair; accounting
    /// requests additional ones.
    pub signalled: bool,
}

/// What a queue pair accepts in one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) ranges_max: u32,
    pub(crate) message_bytes_max: u32,
    /// 0 where the device has no inline data.
    pub(crate) inline_bytes_max: u32,
}

/// A write that its queue pair can never accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    #[error("write {index} gathers {count} ranges, and the queue pair takes {max}")]
    Ranges {
        index: usize,
        count: usize,
        max: u32,
    },
    #[error("write {index} has {bytes} bytes, and the port sends {max} in one message")]
    Bytes { index: usize, bytes: u64, max: u32 },
    #[error("write {index} reads a region of another protection domain than its queue pair's")]
    ForeignRegion { index: usize },
}

/// Requests and the ranges that they gather, linked. Kept between posts to reuse its memory.
#[derive(Default)]
pub(crate) struct Chain {
    requests: Vec<ffi::SendWr>,
    ranges: Vec<ffi::Sge>,
}

// SAFETY: its pointers lead into its own vectors, and are rebuilt before each use.
unsafe impl Send for Chain {}
// SAFETY: through a shared reference no pointer is followed.
unsafe impl Sync for Chain {}

// === impl Write ===

impl Write<'_> {
    fn bytes(&self) -> u64 {
        self.src.iter().map(|range| u64::from(range.len)).sum()
    }

    pub(crate) fn check(
        &self,
        index: usize,
        limits: Limits,
        domain: &ProtectionDomain,
    ) -> Result<(), WriteError> {
        let Limits {
            ranges_max,
            message_bytes_max: max,
            ..
        } = limits;
        let count = self.src.len();
        if count > ranges_max as usize {
            let max = ranges_max;
            return Err(WriteError::Ranges { index, count, max });
        }
        let bytes = self.bytes();
        if bytes > u64::from(max) {
            return Err(WriteError::Bytes { index, bytes, max });
        }
        let foreign = |range: &LocalRange<'_>| range.region.domain().raw() != domain.raw();
        if self.src.iter().any(foreign) {
            return Err(WriteError::ForeignRegion { index });
        }
        Ok(())
    }

    fn flags(&self, admitted: Admitted, limits: Limits) -> u32 {
        let bytes = self.bytes();
        // The processor copies inline data, so it must be able to read them.
        let inline = (1..=u64::from(limits.inline_bytes_max)).contains(&bytes)
            && self.src.iter().all(|range| range.region.is_host_memory());
        let signalled = if admitted.signalled {
            ffi::IBV_SEND_SIGNALED
        } else {
            0
        };
        signalled | if inline { ffi::IBV_SEND_INLINE } else { 0 }
    }
}

// === impl Chain ===

impl Chain {
    pub(crate) fn clear(&mut self) {
        self.requests.clear();
        self.ranges.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Adds a request; `wr_id` names it in its completion.
    pub(crate) fn push(
        &mut self,
        write: &Write<'_>,
        wr_id: u64,
        admitted: Admitted,
        limits: Limits,
    ) {
        self.ranges.extend(write.src.iter().map(|range| ffi::Sge {
            addr: range.addr,
            length: range.len,
            lkey: range.region.lkey().0,
        }));
        self.requests.push(ffi::SendWr {
            wr_id,
            next: std::ptr::null_mut(),
            sg_list: std::ptr::null_mut(),
            num_sge: i32::try_from(write.src.len())
                .expect("checked against the queue pair's limit"),
            opcode: match write.immediate {
                Some(_) => ffi::IBV_WR_RDMA_WRITE_WITH_IMM,
                None => ffi::IBV_WR_RDMA_WRITE,
            },
            send_flags: write.flags(admitted, limits),
            imm_data: write.immediate.unwrap_or(0).to_be(),
            remote_addr: write.dst.addr,
            rkey: write.dst.rkey.0,
            _unused: [0; 9],
        });
    }

    /// Links requests and ranges; returns the first request, from which the device reads them all.
    /// Valid until the chain changes or moves out of `self`.
    pub(crate) fn link(&mut self) -> *mut ffi::SendWr {
        let mut range = self.ranges.as_mut_ptr();
        for request in &mut self.requests {
            let count = usize::try_from(request.num_sge).expect("a count");
            if count > 0 {
                request.sg_list = range;
            }
            // At most one past the end, and never read there.
            range = range.wrapping_add(count);
        }
        let first = self.requests.as_mut_ptr();
        for i in 1..self.requests.len() {
            self.requests[i - 1].next = first.wrapping_add(i);
        }
        first
    }

    /// How many requests were accepted, if `refused` is the first that was not.
    pub(crate) fn taken_before(&self, refused: *const ffi::SendWr) -> usize {
        let first = self.requests.as_ptr() as usize;
        let bytes = (refused as usize).checked_sub(first);
        let index = bytes.map(|bytes| bytes / size_of::<ffi::SendWr>());
        // A driver that names none of them is not trusted: counting all as accepted keeps the
        // device's queue from overflowing.
        index.filter(|&i| i < self.len()).unwrap_or(self.len())
    }
}
