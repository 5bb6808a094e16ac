//! The part of a queue pair that all states share: the library's object and its dependencies.

use crate::completion::Account;
use crate::error::CallError;
use crate::ffi;
use crate::memory::ProtectionDomain;
use crate::queue_pair::QueuePairOptions;
use std::ptr::NonNull;

/// Requests for inline data are halved down to this, then dropped.
const INLINE_BYTES_MIN: u32 = 16;

pub(super) struct Core {
    raw: NonNull<ffi::Qp>,
    pub(super) domain: ProtectionDomain,
    pub(super) send: Account,
    pub(super) receive: Account,
    pub(super) ranges_max: u32,
    pub(super) inline_bytes_max: u32,
}

// SAFETY: libibverbs allows any thread to use a queue pair; nothing is tied to the creating one.
unsafe impl Send for Core {}
// SAFETY: through a shared reference only numbers are read that never change.
unsafe impl Sync for Core {}

// === impl Core ===

impl Core {
    /// A queue pair with as many of the requested inline bytes as the device grants.
    pub(super) fn new(
        domain: &ProtectionDomain,
        send: Account,
        receive: Account,
        options: QueuePairOptions,
    ) -> Result<Self, CallError> {
        let mut wished = options;
        let (raw, inline_bytes_max) = loop {
            match create(domain, &send, &receive, wished) {
                Ok(created) => break created,
                Err(error) if wished.inline_bytes == 0 => return Err(error),
                Err(_) if wished.inline_bytes > INLINE_BYTES_MIN => wished.inline_bytes /= 2,
                Err(_) => wished.inline_bytes = 0,
            }
        };
        Ok(Self {
            raw,
            domain: domain.clone(),
            send,
            receive,
            ranges_max: options.ranges_max,
            inline_bytes_max,
        })
    }

    pub(super) fn raw(&self) -> *mut ffi::Qp {
        self.raw.as_ptr()
    }

    pub(super) fn qp_num(&self) -> u32 {
        // SAFETY: the library's structure lives until the queue pair is destroyed in `drop`.
        unsafe { self.raw.as_ref() }.qp_num
    }

    pub(super) fn object(&self) -> String {
        format!(
            "{} queue pair {}",
            self.domain.device().name(),
            self.qp_num()
        )
    }

    pub(super) fn modify(
        &self,
        attr: &mut ffi::QpAttr,
        mask: u32,
        step: &str,
    ) -> Result<(), CallError> {
        let api = self.domain.device().api();
        // SAFETY: the queue pair is alive, and `attr` is the structure that the call reads.
        let code = unsafe { (api.ibv_modify_qp)(self.raw.as_ptr(), attr, mask.cast_signed()) };
        match code {
            0 => Ok(()),
            code => {
                let object = format!("{} {step}", self.object());
                Err(CallError::new("ibv_modify_qp", object, code))
            }
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        // SAFETY: created once; the completion queues and the domain go after this. If it fails, the
        // device is gone, or the kernel's part stays to the end of the process.
        unsafe { (self.domain.device().api().ibv_destroy_qp)(self.raw.as_ptr()) };
    }
}

/// The queue pair, and its inline bytes.
fn create(
    domain: &ProtectionDomain,
    send: &Account,
    receive: &Account,
    options: QueuePairOptions,
) -> Result<(NonNull<ffi::Qp>, u32), CallError> {
    let QueuePairOptions {
        send_depth,
        receive_depth,
        ranges_max,
        inline_bytes,
    } = options;
    let mut attr = ffi::QpInitAttr {
        qp_context: std::ptr::null_mut(),
        send_cq: send.completions().raw(),
        recv_cq: receive.completions().raw(),
        srq: std::ptr::null_mut(),
        cap: ffi::QpCap {
            // Some devices refuse an empty queue.
            max_send_wr: send_depth.max(1),
            max_recv_wr: receive_depth.max(1),
            max_send_sge: ranges_max,
            // Immediates carry no bytes for a receive, but some devices refuse zero.
            max_recv_sge: 1,
            max_inline_data: inline_bytes,
        },
        qp_type: ffi::IBV_QPT_RC,
        sq_sig_all: 0,
    };
    let device = domain.device();
    // SAFETY: domain and completion queues are alive and will outlive the queue pair, which holds
    // clones of them; `attr` is the structure that the call reads and updates.
    let raw = unsafe { (device.api().ibv_create_qp)(domain.raw(), &raw mut attr) };
    let raw = NonNull::new(raw).ok_or_else(|| {
        let object = format!(
            "{} for {send_depth} writes, {receive_depth} receives",
            device.name()
        );
        CallError::last("ibv_create_qp", object)
    })?;
    // Devices may grant more than requested; the surplus is not used.
    Ok((raw, attr.cap.max_inline_data.min(inline_bytes)))
}
