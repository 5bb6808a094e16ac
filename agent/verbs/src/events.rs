//! Events of a device outside of any transfer: ports that go down, devices that die.

use crate::device::Device;
use crate::error::CallError;
use crate::ffi;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};

/// An asynchronous event of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceEvent {
    PortActive {
        port: u8,
    },
    PortDown {
        port: u8,
    },
    /// The addresses of a port changed: previously chosen GIDs may be gone.
    GidChange {
        port: u8,
    },
    /// The device is gone or broken; it does not recover.
    DeviceFatal,
    /// A queue pair failed outside of any request.
    QueuePairFailed {
        qp_num: u32,
    },
    /// Another event, by its number in `enum ibv_event_type`.
    Other(u32),
}

// === impl Device ===

impl Device {
    /// The next event, or `None` if there is none yet. To wait, poll [`Device::as_fd`] for reading.
    ///
    /// # Errors
    /// The device does not respond.
    pub fn next_event(&self) -> Result<Option<DeviceEvent>, CallError> {
        // SAFETY: pointers and numbers, for which zero is a value.
        let mut event: ffi::AsyncEvent = unsafe { std::mem::zeroed() };
        // SAFETY: the context is open, and `event` is the structure that the call fills.
        let code = unsafe { (self.api().ibv_get_async_event)(self.raw(), &raw mut event) };
        if code != 0 {
            let error = CallError::last("ibv_get_async_event", self.name());
            return match error.errno {
                Errno::AGAIN | Errno::INTR => Ok(None),
                _ => Err(error),
            };
        }
        // SAFETY: the library just filled the event, and it is not acknowledged yet.
        let event_read = unsafe { interpret(&event) };
        // SAFETY: each event is acknowledged once, after its last use.
        unsafe { (self.api().ibv_ack_async_event)(&raw mut event) };
        Ok(Some(event_read))
    }
}

impl AsFd for Device {
    /// Readable when there is an event.
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the context is open for as long as `self` is borrowed.
        unsafe { borrow_async_file(self.raw()) }
    }
}

/// # Safety
/// The library filled the event, and it is not acknowledged yet: until then, a queue pair that it
/// names cannot be destroyed.
unsafe fn interpret(event: &ffi::AsyncEvent) -> DeviceEvent {
    let port = || {
        // SAFETY: the element of these events is a port number; as an integer it is always
        // initialised, for the union was zeroed.
        u8::try_from(unsafe { event.element.port_num }).unwrap_or(0)
    };
    match event.event_type {
        ffi::IBV_EVENT_PORT_ACTIVE => DeviceEvent::PortActive { port: port() },
        ffi::IBV_EVENT_PORT_ERR => DeviceEvent::PortDown { port: port() },
        ffi::IBV_EVENT_GID_CHANGE => DeviceEvent::GidChange { port: port() },
        ffi::IBV_EVENT_DEVICE_FATAL => DeviceEvent::DeviceFatal,
        ffi::IBV_EVENT_QP_FATAL | ffi::IBV_EVENT_QP_REQ_ERR | ffi::IBV_EVENT_QP_ACCESS_ERR => {
            DeviceEvent::QueuePairFailed {
                // SAFETY: the element of these events is a queue pair, alive until acknowledged.
                qp_num: unsafe { (*event.element.qp).qp_num },
            }
        }
        other => DeviceEvent::Other(other),
    }
}

/// # Safety
/// The context stays open for `'a`.
pub(crate) unsafe fn borrow_async_file<'a>(context: *mut ffi::Context) -> BorrowedFd<'a> {
    // SAFETY: the caller keeps the context open, and with it the library keeps this file.
    unsafe { BorrowedFd::borrow_raw((*context).async_fd) }
}

/// Makes a read without a pending event fail instead of waiting.
pub(crate) fn make_non_blocking(file: BorrowedFd<'_>, device: &str) -> Result<(), CallError> {
    let set = fcntl_getfl(file).and_then(|flags| fcntl_setfl(file, flags | OFlags::NONBLOCK));
    set.map_err(|errno| CallError {
        call: "fcntl",
        object: format!("the event file of {device}"),
        errno,
    })
}
