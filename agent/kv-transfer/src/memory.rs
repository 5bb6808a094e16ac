//! Registered memory, which the engine, this process's transfers and, where it is a file's, peers on the
//! same host can reach. Nearly all of the crate's unsafe code.
//!
//! A region that peers are to reach is mapped here a second time, beside the engine's own mapping of
//! the same file, so its owner hands over a file descriptor and never a pointer; one of this process
//! alone is used where it lies. Other threads and processes write the same bytes; here they are only ever
//! touched by raw copies and system calls, never through references. Who may touch which bytes when is the fence's business. Each mapping made here lies between guard
//! pages: an access beyond it ends the process instead of changing other memory.
#![expect(
    unsafe_code,
    reason = "maps, copies and atomics on memory that peers share"
)]

pub(crate) mod device;
mod host;
pub(crate) mod vectored;

pub use device::DeviceMemory;
use device::SharedFile;
pub(crate) use host::HostRegion;
use pd_verbs::Registrable;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::ProtFlags;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// A registered region; cheap to clone, unmapped or closed with the last clone.
#[derive(Clone, Debug)]
pub struct Region {
    memory: Memory,
}

#[derive(Clone, Debug)]
enum Memory {
    Host(HostRegion),
    Device(Arc<dyn DeviceMemory>),
}

/// Why memory cannot be registered, or a range not be touched.
#[derive(Debug, thiserror::Error)]
pub enum RegionError {
    #[error("cannot {call} a region of {len} bytes: {source}")]
    System {
        call: &'static str,
        len: usize,
        source: rustix::io::Errno,
    },
    #[error("the file behind a region has {actual} bytes, but {expected} were stated")]
    FileTooShort { actual: u64, expected: usize },
    #[error("the peer's memory is not sealed against shrinking, so it cannot be mapped safely")]
    NotSealed,
    #[error("bytes {offset}..{end} are not within a region of {len} bytes")]
    OutOfRange { offset: u64, end: u64, len: usize },
    #[error("{ours} memory is not copied to from a peer's {theirs} memory")]
    OtherKind {
        ours: &'static str,
        theirs: &'static str,
    },
    #[error("cannot {call} device memory: {reason}")]
    Device { call: &'static str, reason: String },
}

const HOST_FROM_DEVICE: RegionError = RegionError::OtherKind {
    ours: "host",
    theirs: "device",
};
const DEVICE_FROM_HOST: RegionError = RegionError::OtherKind {
    ours: "device",
    theirs: "host",
};

// === impl Region ===

impl Region {
    /// New shareable memory of `len` bytes, zeroed, sealed against shrinking.
    ///
    /// # Errors
    /// The system refuses the memory.
    pub fn allocate(name: &str, len: usize) -> Result<Self, RegionError> {
        let system = |call| move |source| RegionError::System { call, len, source };
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create(name, flags).map_err(system("create"))?;
        rustix::fs::ftruncate(&file, len as u64).map_err(system("size"))?;
        Self::map(file, len)
    }

    /// Maps `len` bytes from the start of a memfd that its owner exported, for reading and writing.
    /// The file is sealed against shrinking where it allows sealing; only then can peers map it.
    ///
    /// # Errors
    /// The file is shorter than `len`, or cannot be mapped.
    pub fn map(file: OwnedFd, len: usize) -> Result<Self, RegionError> {
        if rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).is_err() {
            tracing::debug!(len, "memory does not allow sealing; peers cannot map it");
        }
        Self::map_with(file, len, ProtFlags::READ | ProtFlags::WRITE)
    }

    /// Memory of this process, where it lies: no other process can reach it.
    pub fn private(memory: Arc<dyn Registrable>) -> Self {
        Self {
            memory: Memory::Host(HostRegion::private(memory)),
        }
    }

    /// Maps a peer's memory for reading.
    ///
    /// # Errors
    /// The file could shrink under us (reading would then kill this process), or cannot be mapped.
    pub(crate) fn map_read_only(file: OwnedFd, len: usize) -> Result<Self, RegionError> {
        let seals = rustix::fs::fcntl_get_seals(&file).unwrap_or(SealFlags::empty());
        if !seals.contains(SealFlags::SHRINK) {
            return Err(RegionError::NotSealed);
        }
        Self::map_with(file, len, ProtFlags::READ)
    }

    /// Memory of a device.
    pub fn device(memory: Arc<dyn DeviceMemory>) -> Self {
        Self {
            memory: Memory::Device(memory),
        }
    }

    /// What a peer offered by `file`: host memory to be mapped, or a handle that `own`, memory of the
    /// device that will copy from it, opens.
    ///
    /// # Errors
    /// As [`Self::map_read_only`], the device's, a file that is no handle, or that the two are of different
    /// kinds.
    pub(crate) fn open_shared(
        file: OwnedFd,
        len: usize,
        own: Option<&dyn DeviceMemory>,
    ) -> Result<Self, RegionError> {
        match (SharedFile::of(file)?, own) {
            (SharedFile::Memory(file), None) => Self::map_read_only(file, len),
            (SharedFile::Handle(handle), Some(own)) => {
                let opened = own.open_shared(&handle, len);
                Ok(Self::device(opened.map_err(failed("open a peer's"))?))
            }
            (SharedFile::Handle(_), None) => Err(HOST_FROM_DEVICE),
            (SharedFile::Memory(_), Some(_)) => Err(DEVICE_FROM_HOST),
        }
    }

    fn map_with(file: OwnedFd, len: usize, prot: ProtFlags) -> Result<Self, RegionError> {
        let memory = Memory::Host(HostRegion::map(file, len, prot)?);
        Ok(Self { memory })
    }

    pub fn len(&self) -> usize {
        match &self.memory {
            Memory::Host(host) => host.len(),
            Memory::Device(device) => device.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the region is host memory.
    pub(crate) fn as_host(&self) -> Option<&HostRegion> {
        match &self.memory {
            Memory::Host(host) => Some(host),
            Memory::Device(_) => None,
        }
    }

    /// Where it is a device's.
    pub(crate) fn as_device(&self) -> Option<&dyn DeviceMemory> {
        match &self.memory {
            Memory::Host(_) => None,
            Memory::Device(device) => Some(device.as_ref()),
        }
    }

    fn check(&self, offset: u64, len: usize) -> Result<(), RegionError> {
        check_range(self.len(), offset, len)
    }

    /// Copies bytes out.
    ///
    /// # Errors
    /// The range leaves the region, or the device's.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), RegionError> {
        match &self.memory {
            Memory::Host(host) => {
                let src = host.at(offset, bytes.len())?;
                // SAFETY: src has bytes.len() mapped bytes; `bytes` is ours alone, so they cannot overlap.
                unsafe { std::ptr::copy_nonoverlapping(src, bytes.as_mut_ptr(), bytes.len()) };
                Ok(())
            }
            Memory::Device(device) => {
                self.check(offset, bytes.len())?;
                device.read(offset, bytes).map_err(failed("read"))
            }
        }
    }

    /// Copies bytes in.
    ///
    /// # Errors
    /// The range leaves the region, or the device's.
    ///
    /// # Panics
    /// The region is a peer's.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), RegionError> {
        match &self.memory {
            Memory::Host(host) => {
                let dst = host.at_writable(offset, bytes.len())?;
                // SAFETY: dst has bytes.len() mapped, writable bytes, apart from any Rust object.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), dst, bytes.len()) };
                Ok(())
            }
            Memory::Device(device) => {
                self.check(offset, bytes.len())?;
                device.write(offset, bytes).map_err(failed("write"))
            }
        }
    }

    /// Copies `len` bytes from another region of the same kind into this one; on a device they are there
    /// after [`settle`].
    ///
    /// # Errors
    /// A range leaves its region, the regions are of different kinds, or the device's.
    pub(crate) fn copy_from(
        &self,
        dst_offset: u64,
        src: &Self,
        src_offset: u64,
        len: usize,
    ) -> Result<(), RegionError> {
        match (&self.memory, &src.memory) {
            (Memory::Host(own), Memory::Host(peer)) => {
                let from = peer.at(src_offset, len)?;
                let to = own.at_writable(dst_offset, len)?;
                // SAFETY: both ranges are mapped; `copy` allows them to be the same memory.
                unsafe { std::ptr::copy(from, to, len) };
                Ok(())
            }
            (Memory::Device(own), Memory::Device(peer)) => {
                self.check(dst_offset, len)?;
                src.check(src_offset, len)?;
                let begun = own.copy_from(dst_offset, peer.as_ref(), src_offset, len);
                begun.map_err(failed("copy to"))
            }
            (Memory::Host(_), Memory::Device(_)) => Err(HOST_FROM_DEVICE),
            (Memory::Device(_), Memory::Host(_)) => Err(DEVICE_FROM_HOST),
        }
    }

    /// The aligned word `index` of a table of words that processes share.
    ///
    /// # Errors
    /// The table has no such word.
    pub(crate) fn word(&self, index: usize) -> Result<&AtomicU64, RegionError> {
        let host = self.as_host().expect("a table of words is host memory");
        let place = host.at(index as u64 * 8, 8)?.cast::<u64>();
        assert!(place.is_aligned(), "a table of words is aligned");
        // SAFETY: the word is aligned and in bounds; it lives as long
        // as `self`; words of such a table are only ever accessed as atomics. Loads are all that a
        // read-only mapping is used for.
        Ok(unsafe { AtomicU64::from_ptr(place) })
    }
}

/// The device that a rank's regions are on, by one of them; `None` where all are host memory.
pub(crate) fn device_of(regions: &[Region]) -> Option<&dyn DeviceMemory> {
    regions.iter().find_map(Region::as_device)
}

/// Waits for the copies to a rank's regions that were begun.
///
/// # Errors
/// The device's.
pub(crate) fn settle(regions: &[Region]) -> Result<(), RegionError> {
    let settled = device_of(regions).map_or(Ok(()), DeviceMemory::settle);
    settled.map_err(failed("copy to"))
}

fn check_range(region_len: usize, offset: u64, len: usize) -> Result<(), RegionError> {
    let end = offset.saturating_add(len as u64);
    if end > region_len as u64 {
        return Err(RegionError::OutOfRange {
            offset,
            end,
            len: region_len,
        });
    }
    Ok(())
}

fn failed(call: &'static str) -> impl FnOnce(String) -> RegionError {
    move |reason| RegionError::Device { call, reason }
}

#[cfg(test)]
mod tests;
