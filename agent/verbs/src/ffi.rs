//! The part of libibverbs that this crate calls: structures, constants and the table of functions,
//! filled at run time. Names follow `infiniband/verbs.h` without its prefix.
//!
//! Structures that the library allocates are declared up to the last field that is read, and only
//! used through pointers; those that are passed to it are declared completely. `tests.rs` checks
//! sizes, offsets and constants against the installed rdma-core header.

use libloading::Library;
use std::ffi::{c_char, c_int, c_uint, c_void};

/// The library's name for the dynamic linker; its version has not changed since 2005.
pub(crate) const LIBRARY: &str = "libibverbs.so.1";

// === what the library allocates ===

#[repr(C)]
pub(crate) struct Device {
    _opaque: [u8; 0],
}

/// Calls on the data path are not symbols of the library: the header's inline functions go through
/// this table, which the NIC's provider fills.
#[repr(C)]
pub(crate) struct ContextOps {
    _before_poll_cq: [*const c_void; 11],
    pub(crate) poll_cq: unsafe extern "C" fn(*mut Cq, c_int, *mut Wc) -> c_int,
    pub(crate) req_notify_cq: unsafe extern "C" fn(*mut Cq, c_int) -> c_int,
    _before_post_send: [*const c_void; 12],
    pub(crate) post_send: unsafe extern "C" fn(*mut Qp, *mut SendWr, *mut *mut SendWr) -> c_int,
    pub(crate) post_recv: unsafe extern "C" fn(*mut Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int,
    _after_post_recv: [*const c_void; 5],
}

#[repr(C)]
pub(crate) struct Context {
    _device: *mut Device,
    pub(crate) ops: ContextOps,
    _cmd_fd: c_int,
    pub(crate) async_fd: c_int,
}

#[repr(C)]
pub(crate) struct Pd {
    _opaque: [u8; 0],
}

#[repr(C)]
pub(crate) struct Mr {
    _context: *mut Context,
    _pd: *mut Pd,
    _addr: *mut c_void,
    _length: usize,
    _handle: u32,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
}

#[repr(C)]
pub(crate) struct CompChannel {
    _context: *mut Context,
    pub(crate) fd: c_int,
}

#[repr(C)]
pub(crate) struct Cq {
    _context: *mut Context,
    _channel: *mut CompChannel,
    _cq_context: *mut c_void,
    _handle: u32,
    pub(crate) cqe: c_int,
}

#[repr(C)]
pub(crate) struct Qp {
    _context: *mut Context,
    _qp_context: *mut c_void,
    _pd: *mut Pd,
    _send_cq: *mut Cq,
    _recv_cq: *mut Cq,
    _srq: *mut c_void,
    _handle: u32,
    pub(crate) qp_num: u32,
}

// === what is handed to the library ===

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct DeviceAttr {
    pub(crate) fw_ver: [c_char; 64],
    pub(crate) node_guid: u64,
    pub(crate) sys_image_guid: u64,
    pub(crate) max_mr_size: u64,
    pub(crate) page_size_cap: u64,
    pub(crate) vendor_id: u32,
    pub(crate) vendor_part_id: u32,
    pub(crate) hw_ver: u32,
    pub(crate) max_qp: c_int,
    pub(crate) max_qp_wr: c_int,
    pub(crate) device_cap_flags: c_uint,
    pub(crate) max_sge: c_int,
    pub(crate) max_sge_rd: c_int,
    pub(crate) max_cq: c_int,
    pub(crate) max_cqe: c_int,
    pub(crate) max_mr: c_int,
    /// From `max_pd` to `max_srq_sge`, with the atomics' capabilities in between: all unused.
    pub(crate) _unused: [c_int; 21],
    pub(crate) max_pkeys: u16,
    pub(crate) local_ca_ack_delay: u8,
    pub(crate) phys_port_cnt: u8,
}

/// The structure grows at its end (it did between rdma-core 44 and 55), which the header's inline
/// functions compensate for. The library's own function, called here, always fills this much of it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PortAttr {
    pub(crate) state: u32,
    pub(crate) max_mtu: u32,
    pub(crate) active_mtu: u32,
    pub(crate) gid_tbl_len: c_int,
    pub(crate) port_cap_flags: u32,
    pub(crate) max_msg_sz: u32,
    pub(crate) bad_pkey_cntr: u32,
    pub(crate) qkey_viol_cntr: u32,
    pub(crate) pkey_tbl_len: u16,
    pub(crate) lid: u16,
    pub(crate) sm_lid: u16,
    /// From `lmc` to `phys_state`.
    pub(crate) _unused: [u8; 8],
    pub(crate) link_layer: u8,
    pub(crate) flags: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct QpCap {
    pub(crate) max_send_wr: u32,
    pub(crate) max_recv_wr: u32,
    pub(crate) max_send_sge: u32,
    pub(crate) max_recv_sge: u32,
    pub(crate) max_inline_data: u32,
}

#[repr(C)]
pub(crate) struct QpInitAttr {
    pub(crate) qp_context: *mut c_void,
    pub(crate) send_cq: *mut Cq,
    pub(crate) recv_cq: *mut Cq,
    pub(crate) srq: *mut c_void,
    pub(crate) cap: QpCap,
    pub(crate) qp_type: u32,
    pub(crate) sq_sig_all: c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct GlobalRoute {
    pub(crate) dgid: Gid,
    pub(crate) flow_label: u32,
    pub(crate) sgid_index: u8,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
}

/// Aligned as the header's union with its two 64-bit words.
#[repr(C, align(8))]
#[derive(Clone, Copy, Default)]
pub(crate) struct Gid {
    pub(crate) raw: [u8; 16],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct AhAttr {
    pub(crate) grh: GlobalRoute,
    pub(crate) dlid: u16,
    pub(crate) sl: u8,
    pub(crate) src_path_bits: u8,
    pub(crate) static_rate: u8,
    pub(crate) is_global: u8,
    pub(crate) port_num: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct QpAttr {
    pub(crate) qp_state: u32,
    pub(crate) cur_qp_state: u32,
    pub(crate) path_mtu: u32,
    pub(crate) path_mig_state: u32,
    pub(crate) qkey: u32,
    pub(crate) rq_psn: u32,
    pub(crate) sq_psn: u32,
    pub(crate) dest_qp_num: u32,
    pub(crate) qp_access_flags: c_uint,
    pub(crate) cap: QpCap,
    pub(crate) ah_attr: AhAttr,
    pub(crate) alt_ah_attr: AhAttr,
    pub(crate) pkey_index: u16,
    pub(crate) alt_pkey_index: u16,
    pub(crate) en_sqd_async_notify: u8,
    pub(crate) sq_draining: u8,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) port_num: u8,
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) alt_port_num: u8,
    pub(crate) alt_timeout: u8,
    pub(crate) rate_limit: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Sge {
    pub(crate) addr: u64,
    pub(crate) length: u32,
    pub(crate) lkey: u32,
}

/// Only the parts of the header's unions that a write uses are named; the rest is padding.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SendWr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut SendWr,
    pub(crate) sg_list: *mut Sge,
    pub(crate) num_sge: c_int,
    pub(crate) opcode: u32,
    pub(crate) send_flags: c_uint,
    /// In network byte order.
    pub(crate) imm_data: u32,
    pub(crate) remote_addr: u64,
    pub(crate) rkey: u32,
    pub(crate) _unused: [u64; 9],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RecvWr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut RecvWr,
    pub(crate) sg_list: *mut Sge,
    pub(crate) num_sge: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Wc {
    pub(crate) wr_id: u64,
    pub(crate) status: u32,
    pub(crate) opcode: u32,
    pub(crate) vendor_err: u32,
    pub(crate) byte_len: u32,
    /// In network byte order.
    pub(crate) imm_data: u32,
    pub(crate) qp_num: u32,
    pub(crate) src_qp: u32,
    pub(crate) wc_flags: c_uint,
    pub(crate) pkey_index: u16,
    pub(crate) slid: u16,
    pub(crate) sl: u8,
    pub(crate) dlid_path_bits: u8,
}

#[repr(C)]
pub(crate) struct AsyncEvent {
    pub(crate) element: AsyncElement,
    pub(crate) event_type: u32,
}

#[repr(C)]
pub(crate) union AsyncElement {
    pub(crate) qp: *mut Qp,
    pub(crate) port_num: c_int,
}

// === constants ===

/// Names a constant as the header does, and lists it for the test against the header.
macro_rules! constants {
    ($($name:ident = $value:expr;)*) => {
        $(pub(crate) const $name: u32 = $value;)*
        #[cfg(test)]
        pub(crate) const CONSTANTS: &[(&str, u32)] = &[$((stringify!($name), $name)),*];
    };
}

constants! {
    IBV_ACCESS_LOCAL_WRITE = 1;
    IBV_ACCESS_REMOTE_WRITE = 1 << 1;
    IBV_ACCESS_ON_DEMAND = 1 << 6;
    IBV_ACCESS_RELAXED_ORDERING = 1 << 20;
    IBV_LINK_LAYER_INFINIBAND = 1;
    IBV_LINK_LAYER_ETHERNET = 2;
    IBV_PORT_DOWN = 1;
    IBV_PORT_INIT = 2;
    IBV_PORT_ARMED = 3;
    IBV_PORT_ACTIVE = 4;
    IBV_QPT_RC = 2;
    IBV_QPS_INIT = 1;
    IBV_QPS_RTR = 2;
    IBV_QPS_RTS = 3;
    IBV_QPS_ERR = 6;
    IBV_QP_STATE = 1;
    IBV_QP_ACCESS_FLAGS = 1 << 3;
    IBV_QP_PKEY_INDEX = 1 << 4;
    IBV_QP_PORT = 1 << 5;
    IBV_QP_AV = 1 << 7;
    IBV_QP_PATH_MTU = 1 << 8;
    IBV_QP_TIMEOUT = 1 << 9;
    IBV_QP_RETRY_CNT = 1 << 10;
    IBV_QP_RNR_RETRY = 1 << 11;
    IBV_QP_RQ_PSN = 1 << 12;
    IBV_QP_MAX_QP_RD_ATOMIC = 1 << 13;
    IBV_QP_MIN_RNR_TIMER = 1 << 15;
    IBV_QP_SQ_PSN = 1 << 16;
    IBV_QP_MAX_DEST_RD_ATOMIC = 1 << 17;
    IBV_QP_DEST_QPN = 1 << 20;
    IBV_WR_RDMA_WRITE = 0;
    IBV_WR_RDMA_WRITE_WITH_IMM = 1;
    IBV_SEND_SIGNALED = 1 << 1;
    IBV_SEND_INLINE = 1 << 3;
    IBV_WC_SUCCESS = 0;
    IBV_WC_RDMA_WRITE = 1;
    IBV_WC_RECV_RDMA_WITH_IMM = 129;
    IBV_EVENT_QP_FATAL = 1;
    IBV_EVENT_QP_REQ_ERR = 2;
    IBV_EVENT_QP_ACCESS_ERR = 3;
    IBV_EVENT_DEVICE_FATAL = 8;
    IBV_EVENT_PORT_ACTIVE = 9;
    IBV_EVENT_PORT_ERR = 10;
    IBV_EVENT_GID_CHANGE = 18;
}

// === functions ===

/// Why the library is unusable.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    #[error(
        "{LIBRARY} cannot be opened ({reason}): install libibverbs1 and the NIC's provider \
         (ibverbs-providers), or use a transfer backend that needs no RDMA"
    )]
    Absent { reason: libloading::Error },
    #[error("{LIBRARY} has no {symbol} ({reason}): rdma-core 28 or newer is needed")]
    Symbol {
        symbol: &'static str,
        reason: libloading::Error,
    },
}

/// Declares the table of functions and how each is found. Those after `optional` came with newer
/// versions of rdma-core, so they may be missing.
macro_rules! functions {
    (
        $(fn $name:ident($($arg:ty),*) $(-> $ret:ty)?;)*
        optional
        $(fn $newer:ident($($newer_arg:ty),*) -> $newer_ret:ty;)*
    ) => {
        pub(crate) struct Api {
            $(pub(crate) $name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
            $(pub(crate) $newer: Option<unsafe extern "C" fn($($newer_arg),*) -> $newer_ret>,)*
        }

        impl Api {
            fn find(library: &Library) -> Result<Self, LibraryError> {
                Ok(Self {
                    $($name: {
                        let symbol = stringify!($name);
                        // SAFETY: the type is that of the function's declaration in verbs.h, which
                        // the soname's version guarantees.
                        let found = unsafe { library.get(symbol.as_bytes()) };
                        *found.map_err(|reason| LibraryError::Symbol { symbol, reason })?
                    },)*
                    // SAFETY: as above.
                    $($newer: unsafe { library.get(stringify!($newer).as_bytes()) }
                        .ok()
                        .map(|found| *found),)*
                })
            }
        }
    };
}

functions! {
    fn ibv_get_device_list(*mut c_int) -> *mut *mut Device;
    fn ibv_free_device_list(*mut *mut Device);
    fn ibv_get_device_name(*mut Device) -> *const c_char;
    fn ibv_open_device(*mut Device) -> *mut Context;
    fn ibv_close_device(*mut Context) -> c_int;
    fn ibv_query_device(*mut Context, *mut DeviceAttr) -> c_int;
    fn ibv_query_port(*mut Context, u8, *mut PortAttr) -> c_int;
    fn ibv_get_async_event(*mut Context, *mut AsyncEvent) -> c_int;
    fn ibv_ack_async_event(*mut AsyncEvent);
    fn ibv_alloc_pd(*mut Context) -> *mut Pd;
    fn ibv_dealloc_pd(*mut Pd) -> c_int;
    fn ibv_reg_mr(*mut Pd, *mut c_void, usize, c_int) -> *mut Mr;
    fn ibv_dereg_mr(*mut Mr) -> c_int;
    fn ibv_create_comp_channel(*mut Context) -> *mut CompChannel;
    fn ibv_destroy_comp_channel(*mut CompChannel) -> c_int;
    fn ibv_create_cq(*mut Context, c_int, *mut c_void, *mut CompChannel, c_int) -> *mut Cq;
    fn ibv_destroy_cq(*mut Cq) -> c_int;
    fn ibv_get_cq_event(*mut CompChannel, *mut *mut Cq, *mut *mut c_void) -> c_int;
    fn ibv_ack_cq_events(*mut Cq, c_uint);
    fn ibv_create_qp(*mut Pd, *mut QpInitAttr) -> *mut Qp;
    fn ibv_modify_qp(*mut Qp, *mut QpAttr, c_int) -> c_int;
    fn ibv_destroy_qp(*mut Qp) -> c_int;
    optional
    fn ibv_reg_mr_iova2(*mut Pd, *mut c_void, usize, u64, c_uint) -> *mut Mr;
    fn ibv_reg_dmabuf_mr(*mut Pd, u64, usize, u64, c_int, c_int) -> *mut Mr;
}

impl Api {
    /// Opens the library for the rest of the process: a provider may leave callbacks behind, so
    /// the library is never unloaded.
    pub(crate) fn open() -> Result<Self, LibraryError> {
        // SAFETY: libibverbs runs nothing on load that depends on this process's state.
        let library =
            unsafe { Library::new(LIBRARY) }.map_err(|reason| LibraryError::Absent { reason })?;
        let api = Self::find(&library)?;
        std::mem::forget(library);
        Ok(api)
    }
}

#[cfg(test)]
pub(crate) mod fake;
#[cfg(any(test, feature = "loopback"))]
mod software;
#[cfg(any(test, feature = "loopback"))]
pub(crate) use software::DataPath;
#[cfg(test)]
mod tests;
