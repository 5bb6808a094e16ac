//! Ranges of registered memory, local and remote, and their keys.

use crate::memory::MemoryRegion;
use serde::{Deserialize, Serialize};

/// Names a local range in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LKey(pub(crate) u32);

/// Names a region of a peer in a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RKey(pub u32);

/// A region as its owner describes it to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteRegion {
    pub addr: u64,
    pub len: u64,
    pub rkey: RKey,
}

/// The destination of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddr {
    pub addr: u64,
    pub rkey: RKey,
}

/// Bytes of a local region.
#[derive(Clone, Copy, Debug)]
pub struct LocalRange<'a> {
    pub(crate) addr: u64,
    pub(crate) len: u32,
    pub(crate) region: &'a MemoryRegion,
}

/// A range that exceeds its region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("bytes {offset}..+{len} are not within a region of {region_len} bytes")]
pub struct RangeError {
    pub offset: u64,
    pub len: u64,
    pub region_len: u64,
}

// === impl RemoteRegion ===

impl RemoteRegion {
    /// The destination of `len` bytes at `offset`.
    ///
    /// # Errors
    /// They exceed the region, or the address space.
    pub fn at(&self, offset: u64, len: u64) -> Result<RemoteAddr, RangeError> {
        let &Self {
            addr,
            len: region_len,
            rkey,
        } = self;
        check(offset, len, region_len)?;
        // A peer may have sent an address near the end of the address space.
        let addr = addr
            .checked_add(offset)
            .filter(|a| a.checked_add(len).is_some());
        let addr = addr.ok_or(RangeError {
            offset,
            len,
            region_len,
        })?;
        Ok(RemoteAddr { addr, rkey })
    }
}

pub(super) fn check(offset: u64, len: u64, region_len: u64) -> Result<(), RangeError> {
    let inside = offset.checked_add(len).is_some_and(|end| end <= region_len);
    let error = RangeError {
        offset,
        len,
        region_len,
    };
    if inside { Ok(()) } else { Err(error) }
}
