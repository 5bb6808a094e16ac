//! Buffers on the device and in pinned host memory.

use super::driver::Driver;
use super::export::EXPORT_GRANULE;
use crate::buffer::{DeviceBuffer, Extent};
use crate::dtype::DType;
use crate::error::ComputeError;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

/// A range of elements of one allocation.
#[derive(Clone)]
pub struct CudaBuffer {
    allocation: Arc<Allocation>,
    dtype: DType,
    offset_bytes: usize,
    len: usize,
}

/// Where an allocation lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemoryKind {
    Device,
    /// Host memory that the device reaches.
    Pinned,
}

struct Allocation {
    driver: Arc<dyn Driver>,
    place: MemoryKind,
    addr: u64,
    bytes: usize,
    name: Box<str>,
}

// === impl CudaBuffer ===

impl CudaBuffer {
    /// Zeroed.
    pub(super) fn alloc(
        driver: &Arc<dyn Driver>,
        place: MemoryKind,
        name: &str,
        dtype: DType,
        len: usize,
    ) -> Result<Self, ComputeError> {
        let oom = |call, bytes, reason: String| ComputeError::OutOfMemory {
            call,
            what: name.to_owned(),
            bytes,
            reason,
        };
        let bytes = len
            .checked_mul(dtype.size_bytes())
            .ok_or_else(|| oom("alloc", usize::MAX, format!("{len} elements exceed memory")))?
            .max(1);
        let addr = match place {
            MemoryKind::Device => driver.alloc(bytes),
            MemoryKind::Pinned => driver
                .alloc_pinned(bytes)
                .map(|place| place.as_ptr() as u64),
        };
        let addr = addr.map_err(|e| oom(e.call, bytes, e.reason))?;
        Ok(Self {
            allocation: Arc::new(Allocation {
                driver: Arc::clone(driver),
                place,
                addr,
                bytes,
                name: name.into(),
            }),
            dtype,
            offset_bytes: 0,
            len,
        })
    }

    /// Address of the first element on the device.
    pub(super) fn addr(&self) -> u64 {
        self.allocation.addr + self.offset_bytes as u64
    }

    /// As [`Self::addr`], after checking that it holds `len` elements of one of `dtypes`.
    ///
    /// # Panics
    /// When it does not.
    pub(super) fn addr_of(&self, what: &str, dtypes: &[DType], len: usize) -> u64 {
        self.expect_elements(what, dtypes, len);
        self.addr()
    }

    /// Whether it begins an allocation on the device that a NIC may be shown.
    pub(super) fn is_whole_granules(&self) -> bool {
        let Allocation { place, bytes, .. } = *self.allocation;
        place == MemoryKind::Device
            && self.offset_bytes == 0
            && bytes.is_multiple_of(EXPORT_GRANULE)
    }

    pub(super) fn is_pinned(&self) -> bool {
        self.allocation.place == MemoryKind::Pinned
    }
}

impl DeviceBuffer for CudaBuffer {
    fn dtype(&self) -> DType {
        self.dtype
    }

    fn len(&self) -> usize {
        self.len
    }

    fn slice(&self, range: Range<usize>) -> Self {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "range {range:?} exceeds the {} elements of {:?}",
            self.len,
            self.allocation.name
        );
        Self {
            offset_bytes: self.offset_bytes + range.start * self.dtype.size_bytes(),
            len: range.len(),
            ..self.clone()
        }
    }

    fn extent(&self) -> Extent {
        Extent {
            allocation: Arc::as_ptr(&self.allocation).addr(),
            bytes: self.offset_bytes..self.offset_bytes + self.size_bytes(),
        }
    }
}

impl std::fmt::Debug for CudaBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            allocation,
            dtype,
            offset_bytes,
            len,
        } = self;
        write!(
            f,
            "CudaBuffer({:?}, {len} of {dtype:?} at byte {offset_bytes})",
            allocation.name
        )
    }
}

// === impl Allocation ===

impl Drop for Allocation {
    fn drop(&mut self) {
        match self.place {
            // SAFETY: `addr` is from `alloc`; freeing waits for the stream, and no handle is left to
            // enqueue anything else.
            MemoryKind::Device => unsafe { self.driver.free(self.addr) },
            MemoryKind::Pinned => {
                let place =
                    NonNull::new(self.addr as *mut u8).expect("an allocation is not at null");
                // SAFETY: as above.
                unsafe { self.driver.free_pinned(place) };
            }
        }
    }
}
