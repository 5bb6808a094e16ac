//! Device buffers and tickets, as every backend offers them.

use crate::dtype::DType;
use crate::error::ComputeError;
use bytemuck::{AnyBitPattern, Pod, Zeroable};
use std::fmt::Debug;
use std::ops::Range;

/// A handle to a range of device memory. Cloning is cheap, and an enqueued op keeps what it uses
/// alive, so a handle may be dropped while work on it is still queued.
pub trait DeviceBuffer: Clone + Debug + Send + Sync + 'static {
    fn dtype(&self) -> DType;

    /// Elements.
    fn len(&self) -> usize;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn size_bytes(&self) -> usize {
        self.len() * self.dtype().size_bytes()
    }

    /// The elements `range` of this buffer, sharing its memory.
    ///
    /// # Panics
    /// When the range does not lie inside the buffer.
    #[must_use]
    fn slice(&self, range: Range<usize>) -> Self;

    /// The memory it lies in.
    fn extent(&self) -> Extent;

    /// Whether the two share any byte.
    fn overlaps(&self, other: &Self) -> bool {
        let (a, b) = (self.extent(), other.extent());
        a.allocation == b.allocation && a.bytes.start < b.bytes.end && b.bytes.start < a.bytes.end
    }

    /// Whether the two begin at the same byte.
    fn begins_with(&self, other: &Self) -> bool {
        let (a, b) = (self.extent(), other.extent());
        a.allocation == b.allocation && a.bytes.start == b.bytes.start
    }

    /// # Panics
    /// When it does not hold `len` elements of one of `dtypes`. `what` is for the message.
    fn expect_elements(&self, what: &str, dtypes: &[DType], len: usize) {
        assert!(
            dtypes.contains(&self.dtype()) && self.len() >= len,
            "{what}: {len} elements of {dtypes:?} needed, {self:?} has other ones",
        );
    }

    /// # Panics
    /// When it shares a byte with one of `others`. `what` is for the message.
    fn expect_apart(&self, what: &str, others: &[&Self]) {
        for other in others {
            assert!(!self.overlaps(other), "{what} overlaps {other:?}");
        }
    }
}

/// A range of bytes of one allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Differs between allocations that exist at the same time.
    pub allocation: usize,
    pub bytes: Range<usize>,
}

/// A pending result of the device. Dropping it abandons the result, not the work.
pub trait Ticket: Debug + Send + 'static {
    /// Blocks until the result, or the fault that prevented it, is here.
    ///
    /// # Errors
    /// The fault of this op or of an earlier one on the queue.
    fn wait(self) -> Result<HostBytes, ComputeError>;

    /// The result if it has arrived; never blocks. Yields it once, then `None`.
    fn try_take(&mut self) -> Option<Result<HostBytes, ComputeError>>;
}

/// Bytes read back from a device, aligned for every element type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostBytes {
    words: Vec<AlignedWord>,
    len_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C, align(8))]
struct AlignedWord([u8; 8]);

// === impl HostBytes ===

impl HostBytes {
    /// Zeroed bytes to be filled by a backend.
    pub fn zeroed(len_bytes: usize) -> Self {
        let words = vec![AlignedWord::zeroed(); len_bytes.div_ceil(size_of::<AlignedWord>())];
        Self { words, len_bytes }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.len_bytes]
    }

    pub fn as_bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.len_bytes]
    }

    /// The bytes as values of `T`.
    ///
    /// # Panics
    /// When the length is no whole number of `T`.
    pub fn as_slice<T: AnyBitPattern>(&self) -> &[T] {
        bytemuck::cast_slice(self.as_bytes())
    }
}
