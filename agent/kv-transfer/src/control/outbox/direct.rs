//! The socket of a control connection, lent by its task to the threads that send.

use super::super::zmtp::{TOGETHER_BYTES, put_message};
use super::bytes_of;
use bytes::Bytes;
use parking_lot::Mutex;
use rustix::net::SendFlags;
use std::os::fd::OwnedFd;

/// See the module's header.
#[derive(Default)]
pub(super) struct Direct {
    /// While the connection is open, and nothing encrypts on the way.
    socket: Option<OwnedFd>,
    /// Messages that go with the next one.
    held: Vec<u8>,
}

/// While it lives, the socket is lent. Its end closes the descriptor: otherwise the connection would outlive its task.
pub(super) struct Loan<'a> {
    direct: &'a Mutex<Direct>,
}

// === impl Direct ===

impl Direct {
    /// Whether a message may be written directly: a larger one would keep the engine.
    pub(super) fn takes(&self, frames: &[Bytes]) -> bool {
        self.socket.is_some() && bytes_of(frames) <= TOGETHER_BYTES
    }

    /// Keeps a message for the next write; false if nothing may be written directly.
    pub(super) fn hold(&mut self, frames: &[Bytes]) -> bool {
        let is_held = self.takes(frames) && self.held.len() <= TOGETHER_BYTES;
        if is_held {
            put_message(&mut self.held, frames);
        }
        is_held
    }

    pub(super) fn take_held(&mut self) -> Option<Vec<u8>> {
        let held = std::mem::take(&mut self.held);
        (!held.is_empty()).then_some(held)
    }

    /// Writes what is held and a message, as far as the socket takes it without waiting; what is left. An error is found
    /// again by the task.
    pub(super) fn write(&mut self, frames: &[Bytes]) -> Option<Vec<u8>> {
        let mut bytes = std::mem::take(&mut self.held);
        put_message(&mut bytes, frames);
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let written = match &self.socket {
            Some(socket) if !bytes.is_empty() => rustix::net::send(socket, &bytes, flags),
            _ => Ok(0),
        };
        bytes.drain(..written.unwrap_or(0));
        (!bytes.is_empty()).then_some(bytes)
    }
}

// === impl Loan ===

impl<'a> Loan<'a> {
    pub(super) fn new(direct: &'a Mutex<Direct>, socket: Option<OwnedFd>) -> Self {
        direct.lock().socket = socket;
        Self { direct }
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        *self.direct.lock() = Direct::default();
    }
}
