//! Registered memory of the fabric, and its keys.
//!
//! Keys differ among all regions of the process, and a region's two differ, so that mixing them up
//! fails.

use super::objects::{DomainId, Kept, RegionId};
use crate::ffi;
use std::ffi::c_void;

pub(super) struct Region {
    pub(super) domain: DomainId,
    /// Its first byte here, and the address by which requests name it.
    pub(super) start: Kept<c_void>,
    pub(super) addr: u64,
    pub(super) len: u64,
    pub(super) takes_writes: bool,
}

// === impl RegionId ===

impl RegionId {
    pub(super) fn lkey(self) -> u32 {
        self.0 << 1
    }

    pub(super) fn rkey(self) -> u32 {
        self.0 << 1 | 1
    }

    pub(super) fn from_lkey(lkey: u32) -> Option<Self> {
        (lkey & 1 == 0).then_some(Self(lkey >> 1))
    }

    pub(super) fn from_rkey(rkey: u32) -> Option<Self> {
        (rkey & 1 == 1).then_some(Self(rkey >> 1))
    }
}

// === impl Region ===

impl Region {
    pub(super) fn new(
        domain: DomainId,
        start: *mut c_void,
        len: usize,
        addr: u64,
        access: u32,
    ) -> Self {
        Self {
            domain,
            start: Kept(start),
            addr,
            len: len as u64,
            takes_writes: access & ffi::IBV_ACCESS_REMOTE_WRITE != 0,
        }
    }

    /// The first of `len` bytes at `addr`; `None` if they exceed the region.
    pub(super) fn at(&self, addr: u64, len: u64) -> Option<*mut u8> {
        let offset = addr.checked_sub(self.addr)?;
        let end = offset.checked_add(len)?;
        let offset = usize::try_from(offset).ok()?;
        (end <= self.len).then(|| self.start.0.cast::<u8>().wrapping_add(offset))
    }
}
