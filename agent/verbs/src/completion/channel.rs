//! Events of one completion queue.

use crate::device::Device;
use crate::error::CallError;
use crate::ffi;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

/// Receives the events of one completion queue.
pub(super) struct Channel {
    raw: NonNull<ffi::CompChannel>,
    device: Device,
}

// SAFETY: libibverbs allows any thread to use a channel.
unsafe impl Send for Channel {}
// SAFETY: as above, at the same time: its calls are system calls on one file.
unsafe impl Sync for Channel {}

// === impl Channel ===

impl Channel {
    pub(super) fn new(device: &Device) -> Result<Self, CallError> {
        // SAFETY: the context is open.
        let raw = unsafe { (device.api().ibv_create_comp_channel)(device.raw()) };
        let raw = NonNull::new(raw)
            .ok_or_else(|| CallError::last("ibv_create_comp_channel", device.name()))?;
        let channel = Self {
            raw,
            device: device.clone(),
        };
        crate::events::make_non_blocking(channel.file(), device.name())?;
        Ok(channel)
    }

    pub(super) fn raw(&self) -> *mut ffi::CompChannel {
        self.raw.as_ptr()
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel keeps its file open until it is destroyed, after `self`.
        unsafe { BorrowedFd::borrow_raw(self.raw.as_ref().fd) }
    }

    /// Returns whether there was an event.
    pub(super) fn take_event(&self) -> Result<bool, CallError> {
        let mut queue = std::ptr::null_mut();
        let mut context = std::ptr::null_mut();
        let get = self.device.api().ibv_get_cq_event;
        // SAFETY: the channel is alive, and both places can be written.
        if unsafe { get(self.raw.as_ptr(), &raw mut queue, &raw mut context) } == 0 {
            return Ok(true);
        }
        let error = CallError::last("ibv_get_cq_event", self.device.name());
        match error.errno {
            Errno::AGAIN | Errno::INTR => Ok(false),
            _ => Err(error),
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: created once; its completion queue is gone, for it is dropped before its fields.
        unsafe { (self.device.api().ibv_destroy_comp_channel)(self.raw.as_ptr()) };
    }
}
