//! Queue pairs, except posting to them.

use super::{QUEUE_DEPTH_MAX, RANGES_MAX, code, given_up, object};
use crate::ffi::{self, Pd, QpAttr, QpCap, QpInitAttr};
use crate::loopback::fabric::{self, ACKNOWLEDGED, Event};
use crate::loopback::objects::{Kept, hand_out, id_of, take_back};
use crate::loopback::queue_pair::{Qp, Sizes, State, WorkQueue};
use rustix::io::Errno;
use std::ffi::c_int;

/// Larger requests are refused, as by hardware.
const INLINE_BYTES_MAX: u32 = 256;

pub(super) unsafe extern "C" fn create_qp(domain: *mut Pd, attr: *mut QpInitAttr) -> *mut ffi::Qp {
    // SAFETY: the caller's structure.
    let attr = unsafe { &*attr };
    // SAFETY: the caller's domain and completion queues.
    let (domain, send_cq, receive_cq) =
        unsafe { (id_of(domain), id_of(attr.send_cq), id_of(attr.recv_cq)) };
    let mut fabric = fabric::lock();
    let context = fabric.domains[&domain];
    object(fabric.working(context).and_then(|nic| {
        let is_foreign = [send_cq, receive_cq].map(|cq| fabric.cqs[&cq].context != context);
        if is_foreign.contains(&true) || attr.qp_type != ffi::IBV_QPT_RC || !fits(attr.cap) {
            return Err(Errno::INVAL);
        }
        let id = fabric.next_qp(nic);
        let raw = hand_out(ffi::Qp::of_software(id.num), id);
        let qp = Qp {
            context,
            domain,
            raw: Kept(raw),
            sizes: Sizes {
                ranges_max: attr.cap.max_send_sge,
                inline_bytes_max: attr.cap.max_inline_data,
                signals_all: attr.sq_sig_all != 0,
            },
            state: State::Reset,
            takes_writes: false,
            peer: None,
            psn: 0,
            rnr_retries: 0,
            sends: WorkQueue::new(send_cq, attr.cap.max_send_wr),
            receives: WorkQueue::new(receive_cq, attr.cap.max_recv_wr),
            unacknowledged: 0,
        };
        fabric.qps.insert(id, qp);
        Ok(raw)
    }))
}

fn fits(cap: QpCap) -> bool {
    let QpCap {
        max_send_wr,
        max_recv_wr,
        max_send_sge,
        max_recv_sge,
        max_inline_data,
    } = cap;
    max_send_wr.max(max_recv_wr) <= QUEUE_DEPTH_MAX
        && max_send_sge.max(max_recv_sge) <= RANGES_MAX
        && max_inline_data <= INLINE_BYTES_MAX
}

pub(super) unsafe extern "C" fn modify_qp(
    raw: *mut ffi::Qp,
    attr: *mut QpAttr,
    mask: c_int,
) -> c_int {
    // SAFETY: the caller's queue pair and structure.
    let (id, attr) = unsafe { (id_of(raw), &*attr) };
    let mut fabric = fabric::lock();
    let context = fabric.qp(id).context;
    let is_working = fabric.working(context);
    code(is_working.and_then(|nic| {
        let unresolved = &mut fabric.nic_mut(nic).unresolved;
        if attr.qp_state == ffi::IBV_QPS_RTR && *unresolved > 0 {
            *unresolved -= 1;
            return Err(Errno::TIMEDOUT);
        }
        fabric.modify(id, attr, mask.cast_unsigned())
    }))
}

/// Waits, as the library does, until events of the queue pair that were taken are acknowledged.
pub(super) unsafe extern "C" fn destroy_qp(raw: *mut ffi::Qp) -> c_int {
    // SAFETY: the caller's queue pair.
    let id = unsafe { id_of(raw) };
    let mut fabric = fabric::lock();
    while fabric.qp(id).unacknowledged > 0 {
        ACKNOWLEDGED.wait(&mut fabric);
    }
    let qp = fabric.qps.remove(&id).expect("it is given up once");
    let events = &mut fabric.context(qp.context).events;
    events.retain(|event| !matches!(event, Event::Qp(_, of, _) if *of == id));
    for cq in [qp.sends.cq, qp.receives.cq] {
        fabric.cq(cq).forget(id);
    }
    // Its peer's writes may wait for a receive that is gone.
    fabric.progress();
    // SAFETY: the caller's queue pair, used no more; no event names it any longer.
    unsafe { take_back(raw) };
    given_up(fabric.working(qp.context))
}
