//! Memory of a backend that others reach: peers on the host, network cards.

use crate::cuda::export::CudaMemory;
use std::os::fd::OwnedFd;

/// Memory that another process or a network card can reach.
#[derive(Debug)]
pub struct MemoryExport {
    /// Address in this process (host memory) or on the device.
    pub addr: u64,
    pub len_bytes: usize,
    pub handle: ExportHandle,
}

/// How a peer on the same host opens exported memory.
#[derive(Debug)]
pub enum ExportHandle {
    /// A memfd: offset 0 of the file is the export's `addr`.
    MemFd(OwnedFd),
    /// Memory of a GPU.
    Cuda(CudaMemory),
}
