//! A failed call of the library: its name, object and errno, and what to do.

use rustix::io::Errno;
use std::fmt;

/// A failed call.
#[derive(Debug, Clone, thiserror::Error)]
pub struct CallError {
    /// As in `infiniband/verbs.h`.
    pub call: &'static str,
    /// The device, with the object if that is more specific: `mlx5_0`, `rxe0 port 1`.
    pub object: String,
    pub errno: Errno,
}

// === impl CallError ===

impl CallError {
    /// For a call that sets `errno`.
    pub(crate) fn last(call: &'static str, object: impl Into<String>) -> Self {
        let code = std::io::Error::last_os_error().raw_os_error();
        Self::new(call, object, code.unwrap_or(0))
    }

    /// For a call that returns its error, of either sign.
    pub(crate) fn new(call: &'static str, object: impl Into<String>, code: i32) -> Self {
        // A few providers return -1 and set errno.
        let code = match code {
            -1 => std::io::Error::last_os_error().raw_os_error().unwrap_or(0),
            code => code.saturating_abs(),
        };
        Self {
            call,
            object: object.into(),
            errno: Errno::from_raw_os_error(code.clamp(1, 4095)),
        }
    }

    /// Whether device or kernel lack the feature, as opposed to refusing this use of it.
    pub fn is_unsupported(&self) -> bool {
        matches!(
            self.errno,
            Errno::OPNOTSUPP | Errno::PROTONOSUPPORT | Errno::NOSYS | Errno::NOTTY
        )
    }

    /// Whether the kernel's lookup of the peer's address timed out, after a second on RoCE: under
    /// load, a live peer may answer a moment later.
    pub fn is_unresolved(&self) -> bool {
        matches!(self.errno, Errno::TIMEDOUT | Errno::AGAIN)
    }

    /// Whether the device disappeared while in use.
    pub fn is_device_gone(&self) -> bool {
        matches!(self.errno, Errno::NODEV | Errno::NXIO | Errno::IO)
    }

    fn advice(&self) -> &'static str {
        if self.is_device_gone() {
            return "the device is gone or was reset; leave it out until it can be opened again";
        }
        if self.is_unsupported() {
            return "the device or the kernel does not support this";
        }
        match self.errno {
            Errno::PERM | Errno::ACCESS => {
                "permission denied: check the rights on /dev/infiniband/uverbs*"
            }
            Errno::NOMEM => {
                "memory cannot be pinned, or a limit of the device is reached: raise the memlock \
                 limit (ulimit -l; in a container the capability IPC_LOCK)"
            }
            Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::TIMEDOUT => {
                "no route to the peer's GID: check that both ends' GIDs are of one family and \
                 network"
            }
            Errno::FAULT => "the memory is not mapped in this process",
            Errno::INVAL => "the device rejects the arguments: compare them with its limits",
            _ => "the kernel log may have details",
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            call,
            object,
            errno,
        } = self;
        write!(f, "{call} failed on {object}: {errno}; {}", self.advice())
    }
}

#[cfg(test)]
mod tests;
