//! Memory of a backend that others reach: peers on the host, network cards.

use crate::cpu::memory::HostMemory;
use crate::cuda::export::CudaMemory;
use std::os::fd::OwnedFd;

/// What reaches memory, apart from this process and its network cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Nothing. Host memory lies in huge pages, which halve what attention of few queries costs.
    Process,
    /// Processes of this host that it is handed to. Host memory lies behind a file, in small pages unless the
    /// system gives shared memory huge ones (`/sys/kernel/mm/transparent_hugepage/shmem_enabled`).
    Host,
}

/// Memory that another process or a network card can reach.
#[derive(Debug)]
pub struct MemoryExport {
    /// Address in this process (host memory) or on the device.
    pub addr: u64,
    pub len_bytes: usize,
    pub handle: ExportHandle,
}

/// How exported memory is opened.
#[derive(Debug)]
pub enum ExportHandle {
    /// A memfd: offset 0 of the file is the export's `addr`.
    MemFd(OwnedFd),
    /// Host memory of this process alone.
    Private(HostMemory),
    /// Memory of a GPU.
    Cuda(CudaMemory),
}
