//! Posting to queue pairs.

use super::code;
use crate::ffi::{self, RecvWr, SendWr, Sge};
use crate::loopback::fabric::{self, Fabric};
use crate::loopback::objects::{QpId, id_of};
use crate::loopback::queue_pair::{Receive, Request, Source, State};
use rustix::io::Errno;
use std::ffi::c_int;
use std::ptr::with_exposed_provenance;

pub(super) unsafe extern "C" fn post_send(
    qp: *mut ffi::Qp,
    first: *mut SendWr,
    refused: *mut *mut SendWr,
) -> c_int {
    // SAFETY: the caller's queue pair.
    let id = unsafe { id_of(qp) };
    let mut fabric = fabric::lock();
    let mut next = first;
    let mut posted = Ok(());
    while !next.is_null() {
        // SAFETY: a chain of the caller's, which ends with null.
        let request = unsafe { *next };
        // SAFETY: it names as many ranges as it says, of memory that can be read if it is inline.
        posted = unsafe { post_write(&mut fabric, id, &request) };
        if posted.is_err() {
            // SAFETY: the caller's place for the request that was refused.
            unsafe { *refused = next };
            break;
        }
        next = request.next;
    }
    fabric.progress();
    code(posted)
}

/// # Safety
/// The request names as many ranges as it says; if it is inline, their bytes can be read.
unsafe fn post_write(fabric: &mut Fabric, id: QpId, wr: &SendWr) -> Result<(), Errno> {
    let (context, sizes, state) = {
        let qp = fabric.qp(id);
        (qp.context, qp.sizes, qp.state)
    };
    fabric.working(context)?;
    let immediate = match wr.opcode {
        ffi::IBV_WR_RDMA_WRITE => None,
        ffi::IBV_WR_RDMA_WRITE_WITH_IMM => Some(wr.imm_data),
        _ => return Err(Errno::INVAL),
    };
    let known_flags = ffi::IBV_SEND_SIGNALED | ffi::IBV_SEND_INLINE;
    let ranges_len = usize::try_from(wr.num_sge).map_err(|_| Errno::INVAL)?;
    if wr.send_flags & !known_flags != 0
        || ranges_len > sizes.ranges_max as usize
        || !matches!(state, State::Rts | State::Error)
    {
        return Err(Errno::INVAL);
    }
    // SAFETY: as the caller states.
    let ranges: Vec<Sge> = (0..ranges_len)
        .map(|i| unsafe { *wr.sg_list.add(i) })
        .collect();
    let src = match wr.send_flags & ffi::IBV_SEND_INLINE {
        0 => Source::Ranges(ranges),
        _ => {
            let bytes: u64 = ranges.iter().map(|range| u64::from(range.length)).sum();
            if bytes > u64::from(sizes.inline_bytes_max) {
                return Err(Errno::INVAL);
            }
            // SAFETY: as the caller states.
            Source::Inline(unsafe { copy(&ranges) })
        }
    };
    let request = Request {
        wr_id: wr.wr_id,
        order: fabric.next_order(),
        src,
        dst_addr: wr.remote_addr,
        rkey: wr.rkey,
        immediate,
        is_signalled: sizes.signals_all || wr.send_flags & ffi::IBV_SEND_SIGNALED != 0,
    };
    fabric.qp(id).sends.push(request)?;
    if state == State::Error {
        fabric.flush(id);
    }
    Ok(())
}

/// # Safety
/// The bytes of the ranges can be read.
unsafe fn copy(ranges: &[Sge]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for range in ranges {
        let (before, len) = (bytes.len(), range.length as usize);
        bytes.resize(before + len, 0);
        let addr = usize::try_from(range.addr).expect("an address of this process");
        let start = with_exposed_provenance::<u8>(addr);
        // SAFETY: as the caller states of the source; the destination was just made.
        unsafe { std::ptr::copy(start, bytes[before..].as_mut_ptr(), len) };
    }
    bytes
}

pub(super) unsafe extern "C" fn post_recv(
    qp: *mut ffi::Qp,
    first: *mut RecvWr,
    refused: *mut *mut RecvWr,
) -> c_int {
    // SAFETY: the caller's queue pair.
    let id = unsafe { id_of(qp) };
    let mut fabric = fabric::lock();
    let mut next = first;
    let mut posted = Ok(());
    while !next.is_null() {
        // SAFETY: a chain of the caller's, which ends with null.
        let request = unsafe { *next };
        posted = post_receive(&mut fabric, id, &request);
        if posted.is_err() {
            // SAFETY: the caller's place for the request that was refused.
            unsafe { *refused = next };
            break;
        }
        next = request.next;
    }
    // The peer's writes may have waited for these.
    fabric.progress();
    code(posted)
}

fn post_receive(fabric: &mut Fabric, id: QpId, wr: &RecvWr) -> Result<(), Errno> {
    let qp = fabric.qp(id);
    let (context, state) = (qp.context, qp.state);
    fabric.working(context)?;
    // Only immediates arrive here, and they carry no bytes for a receive.
    if state == State::Reset || wr.num_sge != 0 {
        return Err(Errno::INVAL);
    }
    fabric.qp(id).receives.push(Receive { wr_id: wr.wr_id })?;
    if state == State::Error {
        fabric.flush(id);
    }
    Ok(())
}
