//! Buffers: ranges of one-dimensional tensors. Words lie in torch's `int32`, bit for bit.

use crate::buffer::{DeviceBuffer, Extent, HostBytes};
use crate::dtype::DType;
use crate::error::ComputeError;
use std::ops::Range;
use std::sync::Arc;
use tch::{Device, Kind, TchError, Tensor};

/// A range of elements of one tensor.
#[derive(Clone)]
pub struct TchBuffer {
    memory: Arc<Memory>,
    offset: usize,
    len: usize,
}

struct Memory {
    /// One dimension, contiguous.
    tensor: Tensor,
    dtype: DType,
    name: Box<str>,
}

// SAFETY: libtorch counts references atomically, shape and storage of this tensor never change, and
// its elements are read and written under the backend's lock only.
unsafe impl Sync for Memory {}

pub(super) fn kind_of(dtype: DType) -> Kind {
    match dtype {
        DType::F32 => Kind::Float,
        DType::F16 => Kind::Half,
        DType::BF16 => Kind::BFloat16,
        DType::U32 => Kind::Int,
        DType::U8 => Kind::Uint8,
        DType::F8E4M3 => Kind::Float8e4m3fn,
    }
}

/// A size or an index as torch takes it.
pub(super) fn int(value: usize) -> i64 {
    i64::try_from(value).expect("sizes in memory are below 2^63")
}

pub(super) fn ints<const N: usize>(values: [usize; N]) -> [i64; N] {
    values.map(int)
}

/// A tensor's sizes.
pub(super) fn shape_of<const N: usize>(tensor: &Tensor) -> [i64; N] {
    let shape = tensor.size();
    shape
        .try_into()
        .expect("the caller knows how many dimensions there are")
}

/// `indices` on `device`, to select with.
///
/// # Errors
/// Names the first that is not below `bound`, the size of `whole`.
pub(super) fn index_tensor(
    indices: &[u32],
    what: &str,
    whole: &str,
    bound: usize,
    device: Device,
) -> Result<Tensor, String> {
    if let Some(wrong) = indices.iter().find(|index| **index as usize >= bound) {
        return Err(format!("{what} {wrong} is beyond {whole} of {bound}"));
    }
    let indices: Vec<i64> = indices.iter().map(|index| i64::from(*index)).collect();
    Ok(Tensor::from_slice(&indices).to_device(device))
}

// === impl TchBuffer ===

impl TchBuffer {
    /// Zeroed.
    pub(super) fn alloc(
        device: Device,
        name: &str,
        dtype: DType,
        len: usize,
    ) -> Result<Self, ComputeError> {
        let oom = |reason: String| ComputeError::OutOfMemory {
            call: "torch.zeros",
            what: name.to_owned(),
            bytes: len.saturating_mul(dtype.size_bytes()),
            reason,
        };
        let size = i64::try_from(len).map_err(|e| oom(e.to_string()))?;
        let tensor = Tensor::f_zeros([size], (kind_of(dtype), device));
        let tensor = tensor.map_err(|e| oom(e.to_string()))?;
        Ok(Self::holding(name, dtype, &tensor))
    }

    /// The elements of a tensor of the kind of `dtype`.
    pub(super) fn holding(name: &str, dtype: DType, tensor: &Tensor) -> Self {
        let memory = Memory {
            tensor: tensor.contiguous().view([-1]),
            dtype,
            name: name.into(),
        };
        Self {
            offset: 0,
            len: memory.tensor.numel(),
            memory: Arc::new(memory),
        }
    }

    pub(super) fn device(&self) -> Device {
        self.memory.tensor.device()
    }

    /// The elements from the `first` on with these strides, sharing memory.
    pub(super) fn strided<const N: usize>(
        &self,
        what: &str,
        first: usize,
        shape: [usize; N],
        strides: [usize; N],
    ) -> Tensor {
        let last = shape.iter().zip(strides);
        let last = last.fold(first, |at, (len, stride)| {
            at + len.saturating_sub(1) * stride
        });
        assert!(
            shape.contains(&0) || last < self.len,
            "{what}: {shape:?} by {strides:?} from {first} exceeds {self:?}"
        );
        let (from, left) = (self.offset + first, self.len - first);
        let tensor = self.memory.tensor.narrow(0, int(from), int(left));
        tensor.as_strided(ints(shape), ints(strides), None)
    }

    /// The first elements in this shape, sharing memory.
    pub(super) fn view<const N: usize>(&self, what: &str, shape: [usize; N]) -> Tensor {
        let mut strides = [1; N];
        for i in (1..N).rev() {
            strides[i - 1] = strides[i] * shape[i];
        }
        self.strided(what, 0, shape, strides)
    }

    /// As [`Self::view`], in f32.
    pub(super) fn floats<const N: usize>(&self, what: &str, shape: [usize; N]) -> Tensor {
        self.view(what, shape).to_kind(Kind::Float)
    }

    /// Overwrites the first elements, each rounded once to this buffer's dtype.
    pub(super) fn store(&self, what: &str, values: &Tensor) {
        self.view(what, [values.numel()])
            .copy_(&values.reshape([-1]));
    }

    /// Overwrites the first elements by their bytes.
    pub(super) fn write(&self, bytes: &[u8]) {
        let element_bytes = self.dtype().size_bytes();
        assert!(
            bytes.len() <= self.size_bytes() && bytes.len().is_multiple_of(element_bytes),
            "{} bytes are no elements of {self:?}",
            bytes.len()
        );
        let len = bytes.len() / element_bytes;
        let values = Tensor::from_data_size(bytes, &ints([len]), kind_of(self.dtype()));
        self.store("upload", &values);
    }

    /// # Errors
    /// What the device says of work that failed before.
    pub(super) fn to_host(&self) -> Result<HostBytes, TchError> {
        let mut host = HostBytes::zeroed(self.size_bytes());
        let values = self.view("read", [self.len]).f_to_device(Device::Cpu)?;
        values.f_copy_data_u8(host.as_bytes_mut(), self.len)?;
        Ok(host)
    }

    /// The first `len` elements on the host.
    ///
    /// # Errors
    /// As [`Self::to_host`].
    pub(super) fn first(&self, what: &str, len: usize) -> Result<HostBytes, String> {
        assert!(len <= self.len, "{what}: {len} elements exceed {self:?}");
        self.slice(0..len).to_host().map_err(|e| e.to_string())
    }

    /// The first `len` words on the host.
    ///
    /// # Errors
    /// As [`Self::to_host`].
    pub(super) fn words(&self, what: &str, len: usize) -> Result<Vec<u32>, String> {
        Ok(self.first(what, len)?.as_slice().to_vec())
    }
}

impl DeviceBuffer for TchBuffer {
    fn dtype(&self) -> DType {
        self.memory.dtype
    }

    fn len(&self) -> usize {
        self.len
    }

    fn slice(&self, range: Range<usize>) -> Self {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "range {range:?} exceeds {self:?}"
        );
        Self {
            memory: Arc::clone(&self.memory),
            offset: self.offset + range.start,
            len: range.len(),
        }
    }

    fn extent(&self) -> Extent {
        let element = self.dtype().size_bytes();
        Extent {
            allocation: Arc::as_ptr(&self.memory).addr(),
            bytes: self.offset * element..(self.offset + self.len) * element,
        }
    }
}

impl std::fmt::Debug for TchBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            memory,
            offset,
            len,
        } = self;
        let Memory { name, dtype, .. } = &**memory;
        write!(
            f,
            "TchBuffer({name:?}, {len} of {dtype:?} from element {offset})"
        )
    }
}
