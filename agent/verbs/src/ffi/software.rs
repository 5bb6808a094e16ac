//! Objects of a library implemented in software. Only the fields that this crate reads are set.

use super::*;
use std::ptr::{null, null_mut};

/// The entries of a context's table that this crate calls.
pub(crate) struct DataPath {
    pub(crate) poll_cq: unsafe extern "C" fn(*mut Cq, c_int, *mut Wc) -> c_int,
    pub(crate) req_notify_cq: unsafe extern "C" fn(*mut Cq, c_int) -> c_int,
    pub(crate) post_send: unsafe extern "C" fn(*mut Qp, *mut SendWr, *mut *mut SendWr) -> c_int,
    pub(crate) post_recv: unsafe extern "C" fn(*mut Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int,
}

impl Device {
    pub(crate) fn of_software() -> Self {
        Self { _opaque: [] }
    }
}

impl Context {
    pub(crate) fn of_software(data_path: &DataPath, async_fd: c_int) -> Self {
        let &DataPath {
            poll_cq,
            req_notify_cq,
            post_send,
            post_recv,
        } = data_path;
        Self {
            _device: null_mut(),
            ops: ContextOps {
                _before_poll_cq: [null(); 11],
                poll_cq,
                req_notify_cq,
                _before_post_send: [null(); 12],
                post_send,
                post_recv,
                _after_post_recv: [null(); 5],
            },
            _cmd_fd: -1,
            async_fd,
        }
    }
}

impl Pd {
    pub(crate) fn of_software() -> Self {
        Self { _opaque: [] }
    }
}

impl Mr {
    pub(crate) fn of_software(lkey: u32, rkey: u32) -> Self {
        Self {
            _context: null_mut(),
            _pd: null_mut(),
            _addr: null_mut(),
            _length: 0,
            _handle: 0,
            lkey,
            rkey,
        }
    }
}

impl CompChannel {
    pub(crate) fn of_software(fd: c_int) -> Self {
        Self {
            _context: null_mut(),
            fd,
        }
    }
}

impl Cq {
    pub(crate) fn of_software(cqe: c_int) -> Self {
        Self {
            _context: null_mut(),
            _channel: null_mut(),
            _cq_context: null_mut(),
            _handle: 0,
            cqe,
        }
    }
}

impl Qp {
    pub(crate) fn of_software(qp_num: u32) -> Self {
        Self {
            _context: null_mut(),
            _qp_context: null_mut(),
            _pd: null_mut(),
            _send_cq: null_mut(),
            _recv_cq: null_mut(),
            _srq: null_mut(),
            _handle: 0,
            qp_num,
        }
    }
}
