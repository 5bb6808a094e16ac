//! Domains and regions.

use super::{code, given_up, object};
use crate::ffi::{self, Mr, Pd};
use crate::loopback::fabric;
use crate::loopback::memory::Region;
use crate::loopback::objects::{DomainId, RegionId, hand_out, id_of, take_back};
use rustix::io::Errno;
use std::ffi::{c_int, c_uint, c_void};

pub(super) unsafe extern "C" fn alloc_pd(context: *mut ffi::Context) -> *mut Pd {
    // SAFETY: the caller's context.
    let context = unsafe { id_of(context) };
    let mut fabric = fabric::lock();
    object(fabric.working(context).map(|_| {
        let id = DomainId(fabric.next_number());
        fabric.domains.insert(id, context);
        hand_out(Pd::of_software(), id)
    }))
}

pub(super) unsafe extern "C" fn dealloc_pd(raw: *mut Pd) -> c_int {
    // SAFETY: the caller's domain.
    let id = unsafe { id_of(raw) };
    let mut fabric = fabric::lock();
    let regions = fabric.regions.values().map(|region| region.domain);
    let mut users = regions.chain(fabric.qps.values().map(|qp| qp.domain));
    if users.any(|user| user == id) {
        return code(Err(Errno::BUSY));
    }
    let context = fabric.domains.remove(&id).expect("it is given up once");
    // SAFETY: the caller's domain, used no more.
    unsafe { take_back(raw) };
    given_up(fabric.working(context))
}

pub(super) unsafe extern "C" fn reg_mr(
    domain: *mut Pd,
    start: *mut c_void,
    len: usize,
    access: c_int,
) -> *mut Mr {
    // SAFETY: this call's contract is the other's.
    unsafe { reg_mr_iova2(domain, start, len, start as u64, access.cast_unsigned()) }
}

pub(super) unsafe extern "C" fn reg_mr_iova2(
    domain: *mut Pd,
    start: *mut c_void,
    len: usize,
    addr: u64,
    access: c_uint,
) -> *mut Mr {
    // SAFETY: the caller's domain.
    let domain = unsafe { id_of(domain) };
    let mut fabric = fabric::lock();
    object(fabric.working(fabric.domains[&domain]).and_then(|_| {
        let is_closed = access & ffi::IBV_ACCESS_LOCAL_WRITE == 0;
        if is_closed && access & ffi::IBV_ACCESS_REMOTE_WRITE != 0 {
            return Err(Errno::INVAL);
        }
        // On-demand paging is unsupported: memory is accessed as it is mapped.
        if access & ffi::IBV_ACCESS_ON_DEMAND != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        let id = RegionId(fabric.next_number());
        let region = Region::new(domain, start, len, addr, access);
        fabric.regions.insert(id, region);
        Ok(hand_out(Mr::of_software(id.lkey(), id.rkey()), id))
    }))
}

pub(super) unsafe extern "C" fn dereg_mr(raw: *mut Mr) -> c_int {
    // SAFETY: the caller's region.
    let id = unsafe { id_of(raw) };
    let mut fabric = fabric::lock();
    let region = fabric.regions.remove(&id).expect("it is given up once");
    // SAFETY: the caller's region, used no more.
    unsafe { take_back(raw) };
    given_up(fabric.working(fabric.domains[&region.domain]))
}
