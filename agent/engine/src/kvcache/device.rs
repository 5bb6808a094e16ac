//! Memory of the pool, as a KV transfer accesses it.

use super::group::ExportError;
use pd_compute::cuda::CudaMemory;
use pd_compute::cuda::driver::{DriverError, IpcHandle};
use pd_compute::{Backend, ExportHandle};
use pd_kv_transfer::{DeviceMemory, Region};
use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::Arc;

#[derive(Debug)]
struct GpuMemory(CudaMemory);

/// A buffer's whole memory, for a transfer.
///
/// # Errors
/// When it cannot be exported or mapped.
pub(super) fn map_region<B: Backend>(
    backend: &B,
    buffer: &B::Buffer,
) -> Result<Region, ExportError> {
    let export = backend.export(buffer)?;
    Ok(match export.handle {
        ExportHandle::MemFd(file) => Region::map(file, export.len_bytes)?,
        ExportHandle::Private(memory) => Region::private(Arc::new(memory)),
        ExportHandle::Cuda(memory) => Region::device(Arc::new(GpuMemory(memory))),
    })
}

fn text(error: DriverError) -> String {
    error.to_string()
}

impl DeviceMemory for GpuMemory {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn addr(&self) -> u64 {
        self.0.addr()
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), String> {
        self.0.read(offset, bytes).map_err(text)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), String> {
        self.0.write(offset, bytes).map_err(text)
    }

    fn copy_from(
        &self,
        offset: u64,
        src: &dyn DeviceMemory,
        src_offset: u64,
        len: usize,
    ) -> Result<(), String> {
        let src = (src as &dyn Any).downcast_ref::<Self>();
        let src = src.ok_or("a peer's memory is of another device's kind")?;
        self.0
            .copy_from(offset, &src.0, src_offset, len)
            .map_err(text)
    }

    fn settle(&self) -> Result<(), String> {
        self.0.sync_side_stream().map_err(text)
    }

    fn share(&self) -> Result<Vec<u8>, String> {
        self.0
            .share()
            .map(|handle| handle.encode().to_vec())
            .map_err(text)
    }

    fn open_shared(&self, handle: &[u8], len: usize) -> Result<Arc<dyn DeviceMemory>, String> {
        let decoded = IpcHandle::decode(handle)
            .ok_or_else(|| format!("a handle of {} bytes is none of a GPU's", handle.len()))?;
        let opened = self.0.open_shared(&decoded, len).map_err(text)?;
        Ok(Arc::new(Self(opened)))
    }

    fn dma_buf(&self) -> Result<OwnedFd, String> {
        self.0.dma_buf().map_err(text)
    }

    fn flush(&self) -> Result<(), String> {
        self.0.flush().map_err(text)
    }
}
