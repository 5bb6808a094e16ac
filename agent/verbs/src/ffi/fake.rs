//! A library for tests: one device, `fake0`, that accepts requests, completes them only when a test
//! says so, and records the calls. Each test's thread has its own device.

use super::*;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ptr::null_mut;

/// What tests read and set.
#[derive(Default)]
pub(crate) struct Fake {
    /// Destroyed objects and steps of queue pairs, in order.
    pub(crate) log: Vec<String>,
    /// Send requests of each call, with their ranges.
    pub(crate) posted: Vec<Vec<(SendWr, Vec<Sge>)>>,
    pub(crate) received: Vec<Vec<RecvWr>>,
    /// Completions that a poll returns.
    pub(crate) ring: VecDeque<Wc>,
    /// Requests of a chain that are accepted before one is refused.
    pub(crate) takes: Option<usize>,
    pub(crate) inline_bytes_max: u32,
    /// Deregistering memory fails.
    pub(crate) keeps_memory: bool,
    qp_nums: u32,
}

thread_local! {
    static FAKE: RefCell<Fake> = RefCell::default();
}

/// Reads or sets this thread's device.
pub(crate) fn with<T>(f: impl FnOnce(&mut Fake) -> T) -> T {
    FAKE.with(|fake| f(&mut fake.borrow_mut()))
}

/// A completion as a provider writes it; for a failed request all but id and status is noise.
pub(crate) fn completion(wr_id: u64, status: u32, opcode: u32) -> Wc {
    Wc {
        wr_id,
        status,
        opcode,
        vendor_err: 0x51,
        byte_len: 0,
        imm_data: 0,
        qp_num: 1,
        src_qp: 0,
        wc_flags: 0,
        pkey_index: 0,
        slid: 0,
        sl: 0,
        dlid_path_bits: 0,
    }
}

/// The library; resets this thread's device.
pub(crate) fn library() -> &'static Api {
    with(|fake| *fake = Fake::default());
    &API
}

static API: Api = Api {
    ibv_get_device_list: get_device_list,
    ibv_free_device_list: free_device_list,
    ibv_get_device_name: get_device_name,
    ibv_open_device: open_device,
    ibv_close_device: close_device,
    ibv_query_device: query_device,
    ibv_query_port: query_port,
    ibv_get_async_event: get_async_event,
    ibv_ack_async_event: ack_async_event,
    ibv_alloc_pd: alloc_pd,
    ibv_dealloc_pd: dealloc_pd,
    ibv_reg_mr: reg_mr,
    ibv_dereg_mr: dereg_mr,
    ibv_create_comp_channel: create_comp_channel,
    ibv_destroy_comp_channel: destroy_comp_channel,
    ibv_create_cq: create_cq,
    ibv_destroy_cq: destroy_cq,
    ibv_get_cq_event: get_cq_event,
    ibv_ack_cq_events: ack_cq_events,
    ibv_create_qp: create_qp,
    ibv_modify_qp: modify_qp,
    ibv_destroy_qp: destroy_qp,
    ibv_reg_mr_iova2: None,
    ibv_reg_dmabuf_mr: None,
};

fn log(what: impl Into<String>) {
    with(|fake| fake.log.push(what.into()));
}

fn new<T>(object: T) -> *mut T {
    Box::into_raw(Box::new(object))
}

/// # Safety
/// `object` came from [`new`] and is used no more.
unsafe fn give_up<T>(object: *mut T, what: &str) -> c_int {
    log(what);
    // SAFETY: as the caller states.
    drop(unsafe { Box::from_raw(object) });
    0
}

extern "C" fn get_device_list(len: *mut c_int) -> *mut *mut Device {
    // SAFETY: the caller's place for the length.
    unsafe { *len = 1 };
    new(new(Device::of_software())).cast()
}

extern "C" fn free_device_list(list: *mut *mut Device) {
    // SAFETY: made by `get_device_list`, and freed once.
    drop(unsafe { Box::from_raw(list) });
}

extern "C" fn get_device_name(_: *mut Device) -> *const c_char {
    c"fake0".as_ptr()
}

extern "C" fn open_device(_: *mut Device) -> *mut Context {
    let event_file = std::fs::File::open("/dev/null").expect("it is there");
    let data_path = DataPath {
        poll_cq,
        req_notify_cq,
        post_send,
        post_recv,
    };
    let async_fd = std::os::fd::IntoRawFd::into_raw_fd(event_file);
    new(Context::of_software(&data_path, async_fd))
}

extern "C" fn close_device(context: *mut Context) -> c_int {
    // SAFETY: made by `open_device` and closed once, with its file.
    unsafe {
        libc::close((*context).async_fd);
        give_up(context, "device")
    }
}

extern "C" fn query_device(_: *mut Context, _: *mut DeviceAttr) -> c_int {
    libc::EIO
}

extern "C" fn query_port(_: *mut Context, _: u8, _: *mut PortAttr) -> c_int {
    libc::EIO
}

extern "C" fn get_async_event(_: *mut Context, _: *mut AsyncEvent) -> c_int {
    libc::EIO
}

extern "C" fn ack_async_event(_: *mut AsyncEvent) {}

extern "C" fn alloc_pd(_: *mut Context) -> *mut Pd {
    // An object without bytes has no unique address, and domains are distinguished by theirs.
    new(0_u64).cast()
}

extern "C" fn dealloc_pd(pd: *mut Pd) -> c_int {
    // SAFETY: made by `alloc_pd`, and given up once.
    unsafe { give_up(pd.cast::<u64>(), "domain") }
}

extern "C" fn reg_mr(_: *mut Pd, _: *mut c_void, _: usize, _: c_int) -> *mut Mr {
    new(Mr::of_software(0x11, 0x22))
}

extern "C" fn dereg_mr(mr: *mut Mr) -> c_int {
    if with(|fake| fake.keeps_memory) {
        return libc::EBUSY;
    }
    // SAFETY: made by `reg_mr`, and given up once.
    unsafe { give_up(mr, "region") }
}

extern "C" fn create_comp_channel(context: *mut Context) -> *mut CompChannel {
    // SAFETY: the caller's context is open.
    new(CompChannel::of_software(unsafe { (*context).async_fd }))
}

extern "C" fn destroy_comp_channel(channel: *mut CompChannel) -> c_int {
    // SAFETY: made by `create_comp_channel`, and given up once.
    unsafe { give_up(channel, "channel") }
}

extern "C" fn create_cq(
    _: *mut Context,
    cqe: c_int,
    _: *mut c_void,
    _: *mut CompChannel,
    _: c_int,
) -> *mut Cq {
    new(Cq::of_software(cqe))
}

extern "C" fn destroy_cq(cq: *mut Cq) -> c_int {
    // SAFETY: made by `create_cq`, and given up once.
    unsafe { give_up(cq, "completions") }
}

extern "C" fn get_cq_event(_: *mut CompChannel, _: *mut *mut Cq, _: *mut *mut c_void) -> c_int {
    -1
}

extern "C" fn ack_cq_events(_: *mut Cq, _: c_uint) {}

extern "C" fn create_qp(_: *mut Pd, attr: *mut QpInitAttr) -> *mut Qp {
    // SAFETY: the caller's structure.
    let cap = unsafe { (*attr).cap };
    let Some(qp_num) = with(|fake| {
        fake.qp_nums += 1;
        (cap.max_inline_data <= fake.inline_bytes_max).then_some(fake.qp_nums)
    }) else {
        return null_mut();
    };
    new(Qp::of_software(qp_num))
}

extern "C" fn modify_qp(_: *mut Qp, attr: *mut QpAttr, _: c_int) -> c_int {
    // SAFETY: the caller's structure.
    log(format!("state {}", unsafe { (*attr).qp_state }));
    0
}

extern "C" fn destroy_qp(qp: *mut Qp) -> c_int {
    // SAFETY: made by `create_qp`, and given up once.
    unsafe { give_up(qp, "queue pair") }
}

extern "C" fn poll_cq(_: *mut Cq, len: c_int, wc: *mut Wc) -> c_int {
    let len = usize::try_from(len).expect("a length");
    let taken: Vec<Wc> = with(|fake| {
        let count = len.min(fake.ring.len());
        fake.ring.drain(..count).collect()
    });
    for (i, completion) in taken.iter().enumerate() {
        // SAFETY: the caller has places for `len` completions.
        unsafe { wc.add(i).write(*completion) };
    }
    i32::try_from(taken.len()).expect("no more than `len`")
}

extern "C" fn req_notify_cq(_: *mut Cq, _: c_int) -> c_int {
    0
}

extern "C" fn post_send(_: *mut Qp, first: *mut SendWr, refused: *mut *mut SendWr) -> c_int {
    let takes = with(|fake| fake.takes).unwrap_or(usize::MAX);
    let mut taken = Vec::new();
    let mut next = first;
    while !next.is_null() && taken.len() < takes {
        // SAFETY: a chain of the caller's, which ends with null.
        let request = unsafe { *next };
        let ranges = (0..usize::try_from(request.num_sge).expect("a count"))
            // SAFETY: the request has that many ranges.
            .map(|i| unsafe { *request.sg_list.add(i) });
        taken.push((request, ranges.collect()));
        next = request.next;
    }
    with(|fake| fake.posted.push(taken));
    // SAFETY: the caller's place for the request that was refused.
    unsafe { *refused = next };
    if next.is_null() { 0 } else { libc::ENOMEM }
}

extern "C" fn post_recv(_: *mut Qp, first: *mut RecvWr, refused: *mut *mut RecvWr) -> c_int {
    let takes = with(|fake| fake.takes).unwrap_or(usize::MAX);
    let mut taken = Vec::new();
    let mut next = first;
    while !next.is_null() && taken.len() < takes {
        // SAFETY: a chain of the caller's, which ends with null.
        let request = unsafe { *next };
        taken.push(request);
        next = request.next;
    }
    with(|fake| fake.received.push(taken));
    // SAFETY: the caller's place for the request that was refused.
    unsafe { *refused = next };
    if next.is_null() { 0 } else { libc::ENOMEM }
}
