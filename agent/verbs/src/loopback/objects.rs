//! Objects as callers hold them: pointers to the structures of the header, followed by the fabric's
//! id.

use crate::ffi;

/// A NIC of the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NicId(pub(super) u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ContextId(pub(super) u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DomainId(pub(super) u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RegionId(pub(super) u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChannelId(pub(super) u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CqId(pub(super) u32);

/// Numbers of queue pairs repeat among NICs, as they do among devices of hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QpId {
    pub(super) nic: NicId,
    pub(super) num: u32,
}

/// What callers hold pointers to, with its id in the fabric.
pub(super) trait Object {
    type Id: Copy;
}

impl Object for ffi::Context {
    type Id = ContextId;
}
impl Object for ffi::Pd {
    type Id = DomainId;
}
impl Object for ffi::Mr {
    type Id = RegionId;
}
impl Object for ffi::CompChannel {
    type Id = ChannelId;
}
impl Object for ffi::Cq {
    type Id = CqId;
}
impl Object for ffi::Qp {
    type Id = QpId;
}

/// The object comes first, so a pointer to the one is a pointer to the other.
#[repr(C)]
struct Handle<T: Object> {
    object: T,
    id: T::Id,
}

/// Makes an object for a caller, who gives it up with [`take_back`].
pub(super) fn hand_out<T: Object>(object: T, id: T::Id) -> *mut T {
    Box::into_raw(Box::new(Handle { object, id })).cast()
}

/// # Safety
/// The object was made by [`hand_out`] and not given up.
pub(super) unsafe fn id_of<T: Object>(object: *mut T) -> T::Id {
    // SAFETY: as the caller states, the pointer leads to a whole handle; its number never changes.
    unsafe { (*object.cast::<Handle<T>>()).id }
}

/// # Safety
/// The object was made by [`hand_out`], and is used no more.
pub(super) unsafe fn take_back<T: Object>(object: *mut T) {
    // SAFETY: as the caller states; the pointer is the one that the box was turned into.
    drop(unsafe { Box::from_raw(object.cast::<Handle<T>>()) });
}

/// A pointer that the fabric keeps. Each field of this type states why that is sound.
pub(super) struct Kept<T>(pub(super) *mut T);

impl<T> Clone for Kept<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Kept<T> {}

// SAFETY: without a dereference a pointer is only a number, and dereferencing is unsafe everywhere.
unsafe impl<T> Send for Kept<T> {}
