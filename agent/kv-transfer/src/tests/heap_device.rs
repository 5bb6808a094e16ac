//! A device of plain memory: copies wait until they are settled, calls are counted, and any can be refused.

use crate::memory::{DeviceMemory, Region};
use parking_lot::Mutex;
use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// What drivers of all processes know: a handle is an index.
static SHARED: Mutex<Vec<Bytes>> = Mutex::new(Vec::new());

type Bytes = Arc<Mutex<Vec<u8>>>;
type Hook = Box<dyn FnOnce() + Send>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Read,
    Write,
    CopyFrom,
    Settle,
    Share,
    OpenShared,
    DmaBuf,
    Flush,
}

/// One device; cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct HeapDevice(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    calls: Vec<Call>,
    /// A call, and how many of it are let through.
    refused: Option<(Call, usize)>,
    hooks: Vec<(Call, Hook)>,
    begun: Vec<Begun>,
    handle: Option<Vec<u8>>,
}

/// A copy that has not run.
struct Begun {
    dst: (Bytes, usize),
    src: (Bytes, usize),
    len: usize,
}

#[derive(Debug)]
struct HeapMemory {
    device: HeapDevice,
    bytes: Bytes,
    len: usize,
}

// === impl HeapDevice ===

impl HeapDevice {
    pub(crate) fn allocate(&self, len: usize) -> Region {
        Region::device(self.memory(Arc::new(Mutex::new(vec![0; len])), len))
    }

    fn memory(&self, bytes: Bytes, len: usize) -> Arc<HeapMemory> {
        Arc::new(HeapMemory {
            device: self.clone(),
            bytes,
            len,
        })
    }

    pub(crate) fn count(&self, call: Call) -> usize {
        let state = self.0.lock();
        state.calls.iter().filter(|&&made| made == call).count()
    }

    /// Copies that were begun and have not ended.
    pub(crate) fn in_flight(&self) -> usize {
        self.0.lock().begun.len()
    }

    /// Refuses `call` from now on, after `let_through` more.
    pub(crate) fn refuse(&self, call: Call, let_through: usize) {
        self.0.lock().refused = Some((call, let_through));
    }

    pub(crate) fn recover(&self) {
        self.0.lock().refused = None;
    }

    /// Runs within the next `call`, before it does anything.
    pub(crate) fn on(&self, call: Call, hook: impl FnOnce() + Send + 'static) {
        self.0.lock().hooks.push((call, Box::new(hook)));
    }

    /// Names its memory by this.
    pub(crate) fn share_as(&self, handle: &[u8]) {
        self.0.lock().handle = Some(handle.to_vec());
    }

    fn enter(&self, call: Call) -> Result<(), String> {
        let hook = {
            let mut state = self.0.lock();
            state.calls.push(call);
            let at = state.hooks.iter().position(|(on, _)| *on == call);
            at.map(|at| state.hooks.remove(at).1)
        };
        if let Some(hook) = hook {
            hook();
        }
        match &mut self.0.lock().refused {
            Some((refused, 0)) if *refused == call => {
                Err(format!("{call:?} is refused on purpose"))
            }
            Some((refused, let_through)) if *refused == call => {
                *let_through -= 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl std::fmt::Debug for HeapDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeapDevice").finish_non_exhaustive()
    }
}

// === impl HeapMemory ===

impl DeviceMemory for HeapMemory {
    fn len(&self) -> usize {
        self.len
    }

    fn addr(&self) -> u64 {
        0
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), String> {
        self.device.enter(Call::Read)?;
        let at = to_usize(offset);
        bytes.copy_from_slice(&self.bytes.lock()[at..at + bytes.len()]);
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), String> {
        self.device.enter(Call::Write)?;
        let at = to_usize(offset);
        self.bytes.lock()[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn copy_from(
        &self,
        offset: u64,
        src: &dyn DeviceMemory,
        src_offset: u64,
        len: usize,
    ) -> Result<(), String> {
        self.device.enter(Call::CopyFrom)?;
        let src = (src as &dyn Any).downcast_ref::<Self>();
        let src = src.ok_or("memory of another kind of device")?;
        let begun = Begun {
            dst: (Arc::clone(&self.bytes), to_usize(offset)),
            src: (Arc::clone(&src.bytes), to_usize(src_offset)),
            len,
        };
        self.device.0.lock().begun.push(begun);
        Ok(())
    }

    fn settle(&self) -> Result<(), String> {
        let entered = self.device.enter(Call::Settle);
        let begun = std::mem::take(&mut self.device.0.lock().begun);
        entered?;
        for Begun { dst, src, len } in begun {
            let bytes = src.0.lock()[src.1..src.1 + len].to_vec();
            dst.0.lock()[dst.1..dst.1 + len].copy_from_slice(&bytes);
        }
        Ok(())
    }

    fn share(&self) -> Result<Vec<u8>, String> {
        self.device.enter(Call::Share)?;
        if let Some(handle) = self.device.0.lock().handle.clone() {
            return Ok(handle);
        }
        let mut shared = SHARED.lock();
        shared.push(Arc::clone(&self.bytes));
        Ok((shared.len() - 1).to_le_bytes().to_vec())
    }

    fn open_shared(&self, handle: &[u8], len: usize) -> Result<Arc<dyn DeviceMemory>, String> {
        self.device.enter(Call::OpenShared)?;
        let index = handle.try_into().map(usize::from_le_bytes);
        let index = index.map_err(|_| format!("a handle of {} bytes is none", handle.len()))?;
        let bytes = SHARED.lock().get(index).cloned();
        let bytes = bytes.ok_or("the handle names nothing")?;
        Ok(self.device.memory(bytes, len))
    }

    fn dma_buf(&self) -> Result<OwnedFd, String> {
        self.device.enter(Call::DmaBuf)?;
        Err("plain memory has none".to_owned())
    }

    fn flush(&self) -> Result<(), String> {
        self.device.enter(Call::Flush)
    }
}

fn to_usize(offset: u64) -> usize {
    usize::try_from(offset).expect("an offset was checked")
}
