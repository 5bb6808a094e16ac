//! The library's functions over the fabric: the table, devices and their events.
//!
//! All of them have the contract of `infiniband/verbs.h`, on which each unsafe block here and in
//! the modules below relies: objects came from this table's functions and are destroyed once, after
//! the objects made from them; output locations are writable, input structures and chains are
//! complete.

mod completion;
mod memory;
mod post;
mod queue_pair;

use super::carry::MESSAGE_BYTES_MAX;
use super::event_queue::{self, EventQueue};
use super::fabric::{self, ACKNOWLEDGED, Context, Event};
use super::objects::{ContextId, NicId, hand_out, id_of, take_back};
use crate::ffi::{self, Api, AsyncEvent, DataPath, DeviceAttr, PortAttr};
use rustix::io::Errno;
use std::ffi::{CString, c_char, c_int};
use std::ptr::null_mut;

pub(super) static API: Api = Api {
    ibv_get_device_list: get_device_list,
    ibv_free_device_list: free_device_list,
    ibv_get_device_name: get_device_name,
    ibv_open_device: open_device,
    ibv_close_device: close_device,
    ibv_query_device: query_device,
    ibv_query_port: query_port,
    ibv_get_async_event: get_async_event,
    ibv_ack_async_event: ack_async_event,
    ibv_alloc_pd: memory::alloc_pd,
    ibv_dealloc_pd: memory::dealloc_pd,
    ibv_reg_mr: memory::reg_mr,
    ibv_dereg_mr: memory::dereg_mr,
    ibv_create_comp_channel: completion::create_comp_channel,
    ibv_destroy_comp_channel: completion::destroy_comp_channel,
    ibv_create_cq: completion::create_cq,
    ibv_destroy_cq: completion::destroy_cq,
    ibv_get_cq_event: completion::get_cq_event,
    ibv_ack_cq_events: completion::ack_cq_events,
    ibv_create_qp: queue_pair::create_qp,
    ibv_modify_qp: queue_pair::modify_qp,
    ibv_destroy_qp: queue_pair::destroy_qp,
    ibv_reg_mr_iova2: Some(memory::reg_mr_iova2),
    ibv_reg_dmabuf_mr: None,
};

static DATA_PATH: DataPath = DataPath {
    poll_cq: completion::poll_cq,
    req_notify_cq: completion::req_notify_cq,
    post_send: post::post_send,
    post_recv: post::post_recv,
};

// Typical of hardware.
const QUEUE_DEPTH_MAX: u32 = 1 << 15;
const CQ_DEPTH_MAX: u32 = 1 << 22;
const RANGES_MAX: u32 = 30;

/// An entry of the list of devices.
#[repr(C)]
struct Listed {
    device: ffi::Device,
    nic: NicId,
    name: CString,
}

// === answers ===

/// For a call that returns its error.
fn code(done: Result<(), Errno>) -> c_int {
    done.err().map_or(0, Errno::raw_os_error)
}

/// For a call that sets `errno`.
fn code_in_errno(done: Result<(), Errno>) -> c_int {
    done.map_or_else(|errno| (set_errno(errno), -1).1, |()| 0)
}

/// For a call that makes an object and sets `errno`.
fn object<T>(made: Result<*mut T, Errno>) -> *mut T {
    made.unwrap_or_else(|errno| (set_errno(errno), null_mut()).1)
}

fn set_errno(errno: Errno) {
    // SAFETY: the place is this thread's own, and always there.
    unsafe { *libc::__errno_location() = errno.raw_os_error() };
}

/// For a call that destroyed an object. On a removed device it fails nevertheless, like every call.
fn given_up(is_working: Result<NicId, Errno>) -> c_int {
    code(is_working.map(|_| ()))
}

// === devices ===

unsafe extern "C" fn get_device_list(len: *mut c_int) -> *mut *mut ffi::Device {
    let fabric = fabric::lock();
    let present = fabric.nics.iter();
    let present = present.filter(|(_, nic)| nic.is_listed && !nic.is_removed);
    let mut list: Vec<*mut ffi::Device> = present
        .map(|(&nic, state)| {
            let name = CString::new(state.name.as_str()).expect("checked when it was made");
            let device = ffi::Device::of_software();
            let listed = Listed { device, nic, name };
            Box::into_raw(Box::new(listed)).cast()
        })
        .collect();
    // SAFETY: the caller's place for the length.
    unsafe { *len = c_int::try_from(list.len()).expect("a few devices") };
    list.push(null_mut());
    Box::into_raw(list.into_boxed_slice()).cast()
}

unsafe extern "C" fn free_device_list(list: *mut *mut ffi::Device) {
    let mut len = 0;
    // SAFETY: the list ends with null.
    while let device = unsafe { *list.add(len) }
        && !device.is_null()
    {
        // SAFETY: each entry is a box of `get_device_list`'s.
        drop(unsafe { Box::from_raw(device.cast::<Listed>()) });
        len += 1;
    }
    let list = std::ptr::slice_from_raw_parts_mut(list, len + 1);
    // SAFETY: the list is a box of `get_device_list`'s, of its devices and the null.
    drop(unsafe { Box::from_raw(list) });
}

unsafe extern "C" fn get_device_name(device: *mut ffi::Device) -> *const c_char {
    // SAFETY: an entry of a list that is not yet freed.
    unsafe { (*device.cast::<Listed>()).name.as_ptr() }
}

unsafe extern "C" fn open_device(device: *mut ffi::Device) -> *mut ffi::Context {
    // SAFETY: an entry of a list that is not yet freed.
    let nic = unsafe { (*device.cast::<Listed>()).nic };
    let mut fabric = fabric::lock();
    // The list may be outdated.
    let is_present = fabric.nics.get(&nic).is_some_and(|nic| !nic.is_removed);
    let mut open = || {
        let events = EventQueue::new()?;
        let id = ContextId(fabric.next_number());
        let raw = ffi::Context::of_software(&DATA_PATH, events.raw_fd());
        fabric.contexts.insert(id, Context { nic, events });
        Ok(hand_out(raw, id))
    };
    object(if is_present {
        open()
    } else {
        Err(Errno::NODEV)
    })
}

unsafe extern "C" fn close_device(raw: *mut ffi::Context) -> c_int {
    // SAFETY: the caller's context.
    let id = unsafe { id_of(raw) };
    let mut fabric = fabric::lock();
    let domains = fabric.domains.values();
    let is_used = domains.chain(fabric.channels.values().map(|c| &c.context));
    let mut is_used = is_used.chain(fabric.cqs.values().map(|c| &c.context));
    if is_used.any(|&user| user == id) {
        return Errno::BUSY.raw_os_error();
    }
    fabric.contexts.remove(&id);
    fabric.forget_unused_nics();
    // SAFETY: the caller's context, used no more.
    unsafe { take_back(raw) };
    0
}

unsafe extern "C" fn query_device(raw: *mut ffi::Context, attr: *mut DeviceAttr) -> c_int {
    // SAFETY: the caller's context.
    let id = unsafe { id_of(raw) };
    let count = |number: u32| c_int::try_from(number).expect("a small number");
    code(fabric::lock().working(id).map(|_| {
        // SAFETY: numbers, for which zero is a value.
        let mut found: DeviceAttr = unsafe { std::mem::zeroed() };
        for (place, byte) in found.fw_ver.iter_mut().zip(b"loopback") {
            *place = byte.cast_signed();
        }
        found.max_mr_size = u64::MAX;
        found.max_qp = 1 << 17;
        found.max_qp_wr = count(QUEUE_DEPTH_MAX);
        found.max_sge = count(RANGES_MAX);
        found.max_cq = 1 << 17;
        found.max_cqe = count(CQ_DEPTH_MAX);
        found.max_mr = 1 << 24;
        found.max_pkeys = 1;
        found.phys_port_cnt = 1;
        // SAFETY: the caller's structure.
        unsafe { attr.write(found) };
    }))
}

unsafe extern "C" fn query_port(raw: *mut ffi::Context, port: u8, attr: *mut PortAttr) -> c_int {
    const MTU_4096: u32 = 5;
    // SAFETY: the caller's context.
    let id = unsafe { id_of(raw) };
    let fabric = fabric::lock();
    code(fabric.working(id).and_then(|nic| {
        if port != 1 {
            return Err(Errno::INVAL);
        }
        let found = PortAttr {
            state: if fabric.nic(nic).is_cut {
                ffi::IBV_PORT_DOWN
            } else {
                ffi::IBV_PORT_ACTIVE
            },
            max_mtu: MTU_4096,
            active_mtu: MTU_4096,
            gid_tbl_len: 1,
            port_cap_flags: 0,
            max_msg_sz: MESSAGE_BYTES_MAX,
            bad_pkey_cntr: 0,
            qkey_viol_cntr: 0,
            pkey_tbl_len: 1,
            lid: 0,
            sm_lid: 0,
            _unused: [0; 8],
            link_layer: u8::try_from(ffi::IBV_LINK_LAYER_ETHERNET).expect("a small number"),
            flags: 0,
        };
        // SAFETY: the caller's structure.
        unsafe { attr.write(found) };
        Ok(())
    }))
}

// === events ===

unsafe extern "C" fn get_async_event(raw: *mut ffi::Context, event: *mut AsyncEvent) -> c_int {
    // SAFETY: the caller's context.
    let id = unsafe { id_of(raw) };
    let found = event_queue::take(
        |fabric| &mut fabric.context(id).events,
        |fabric, event| {
            if let &Event::Qp(_, qp, _) = event {
                fabric.qp(qp).unacknowledged += 1;
            }
        },
    );
    code_in_errno(found.map(|found| {
        // SAFETY: the caller's structure; what the element does not need of it stays as it was.
        unsafe {
            match found {
                Event::Port(event_type) => {
                    (*event).element.port_num = 1;
                    (*event).event_type = event_type;
                }
                Event::DeviceFatal => (*event).event_type = ffi::IBV_EVENT_DEVICE_FATAL,
                Event::Qp(event_type, _, qp) => {
                    (*event).element.qp = qp.0;
                    (*event).event_type = event_type;
                }
            }
        }
    }))
}

unsafe extern "C" fn ack_async_event(event: *mut AsyncEvent) {
    // SAFETY: an event of `get_async_event`'s.
    let event_type = unsafe { (*event).event_type };
    let of_qp = [
        ffi::IBV_EVENT_QP_FATAL,
        ffi::IBV_EVENT_QP_REQ_ERR,
        ffi::IBV_EVENT_QP_ACCESS_ERR,
    ];
    if of_qp.contains(&event_type) {
        // SAFETY: such an event names a queue pair, which is not destroyed before this.
        let id = unsafe { id_of((*event).element.qp) };
        fabric::lock().qp(id).unacknowledged -= 1;
        ACKNOWLEDGED.notify_all();
    }
}
