//! Completion queues and their channels.

use super::{CQ_DEPTH_MAX, code, code_in_errno, given_up, object};
use crate::ffi::{self, CompChannel, Wc};
use crate::loopback::completion::{Channel, Cq};
use crate::loopback::event_queue::{self, EventQueue};
use crate::loopback::fabric::{self, ACKNOWLEDGED};
use crate::loopback::objects::{ChannelId, CqId, Kept, hand_out, id_of, take_back};
use rustix::io::Errno;
use std::ffi::{c_int, c_uint, c_void};

pub(super) unsafe extern "C" fn create_comp_channel(
    context: *mut ffi::Context,
) -> *mut CompChannel {
    // SAFETY: the caller's context.
    let context = unsafe { id_of(context) };
    let mut fabric = fabric::lock();
    object(fabric.working(context).and_then(|_| {
        let events = EventQueue::new()?;
        let id = ChannelId(fabric.next_number());
        let raw = CompChannel::of_software(events.raw_fd());
        fabric.channels.insert(id, Channel { context, events });
        Ok(hand_out(raw, id))
    }))
}

pub(super) unsafe extern "C" fn destroy_comp_channel(raw: *mut CompChannel) -> c_int {
    // SAFETY: the caller's channel.
    let id = unsafe { id_of(raw) };
    let mut fabric = fabric::lock();
    if fabric.cqs.values().any(|cq| cq.channel == Some(id)) {
        return code(Err(Errno::BUSY));
    }
    let channel = fabric.channels.remove(&id).expect("it is given up once");
    // SAFETY: the caller's channel, used no more.
    unsafe { take_back(raw) };
    given_up(fabric.working(channel.context))
}

pub(super) unsafe extern "C" fn create_cq(
    context: *mut ffi::Context,
    depth: c_int,
    _: *mut c_void,
    channel: *mut CompChannel,
    _: c_int,
) -> *mut ffi::Cq {
    // SAFETY: the caller's context.
    let context = unsafe { id_of(context) };
    // SAFETY: the caller's channel, if any.
    let channel = (!channel.is_null()).then(|| unsafe { id_of(channel) });
    let mut fabric = fabric::lock();
    object(fabric.working(context).and_then(|_| {
        let entries = u32::try_from(depth).map_err(|_| Errno::INVAL)?;
        if entries == 0 || entries > CQ_DEPTH_MAX {
            return Err(Errno::INVAL);
        }
        let id = CqId(fabric.next_number());
        let raw = hand_out(ffi::Cq::of_software(depth), id);
        let cq = Cq::new(context, channel, Kept(raw), entries as usize);
        fabric.cqs.insert(id, cq);
        Ok(raw)
    }))
}

/// Waits, as the library does, until events of the queue that were taken are acknowledged.
pub(super) unsafe extern "C" fn destroy_cq(raw: *mut ffi::Cq) -> c_int {
    // SAFETY: the caller's queue.
    let id = unsafe { id_of(raw) };
    let mut fabric = fabric::lock();
    let mut users = fabric.qps.values();
    if users.any(|qp| [qp.sends.cq, qp.receives.cq].contains(&id)) {
        return code(Err(Errno::BUSY));
    }
    while fabric.cq(id).unacknowledged > 0 {
        ACKNOWLEDGED.wait(&mut fabric);
    }
    let cq = fabric.cqs.remove(&id).expect("it is given up once");
    if let Some(channel) = cq.channel {
        let events = &mut fabric.channel(channel).events;
        events.retain(|&(of, _)| of != id);
    }
    // SAFETY: the caller's queue, used no more; no event names it any longer.
    unsafe { take_back(raw) };
    given_up(fabric.working(cq.context))
}

pub(super) unsafe extern "C" fn get_cq_event(
    channel: *mut CompChannel,
    cq: *mut *mut ffi::Cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller's channel.
    let id = unsafe { id_of(channel) };
    let found = event_queue::take(
        |fabric| &mut fabric.channel(id).events,
        |fabric, &(cq, _)| fabric.cq(cq).unacknowledged += 1,
    );
    code_in_errno(found.map(|(_, raw)| {
        // SAFETY: the caller's places.
        unsafe {
            *cq = raw.0;
            *cq_context = std::ptr::null_mut();
        }
    }))
}

pub(super) unsafe extern "C" fn ack_cq_events(cq: *mut ffi::Cq, count: c_uint) {
    // SAFETY: the caller's queue.
    let id = unsafe { id_of(cq) };
    fabric::lock().cq(id).unacknowledged -= count;
    ACKNOWLEDGED.notify_all();
}

pub(super) unsafe extern "C" fn poll_cq(cq: *mut ffi::Cq, len: c_int, wc: *mut Wc) -> c_int {
    // SAFETY: the caller's queue.
    let id = unsafe { id_of(cq) };
    let mut fabric = fabric::lock();
    if let Err(errno) = fabric.working(fabric.cqs[&id].context) {
        return -errno.raw_os_error();
    }
    for count in 0..len {
        let Some(entry) = fabric.cq(id).pop() else {
            return count;
        };
        fabric.qp(entry.qp).free_through(entry.position);
        let place = usize::try_from(count).expect("it counts from 0");
        // SAFETY: the caller has places for `len` completions, and this is one of them.
        unsafe { wc.add(place).write(entry.to_wc()) };
    }
    len
}

pub(super) unsafe extern "C" fn req_notify_cq(cq: *mut ffi::Cq, solicited_only: c_int) -> c_int {
    // SAFETY: the caller's queue.
    let id = unsafe { id_of(cq) };
    let mut fabric = fabric::lock();
    code(fabric.working(fabric.cqs[&id].context).and_then(|_| {
        // No request here is solicited.
        if solicited_only != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        fabric.cq(id).is_armed = true;
        Ok(())
    }))
}
