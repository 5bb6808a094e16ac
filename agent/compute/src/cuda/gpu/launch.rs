//! Launches. Where a kernel waits for those before it by itself, its blocks start while the one before it ends:
//! CUDA's programmatic dependent launch.

use super::failed;
use crate::cuda::driver::{DriverError, Launch};
use cudarc::driver::sys;
use std::ffi::c_void;

/// Enqueues the kernel that `function` is. Behind anything but a kernel it starts when that has ended.
///
/// # Safety
/// The function is of a loaded module, the stream of its context, and `launch` is as for
/// [`crate::cuda::driver::Driver::enqueue`]; `overlaps` is true for code that waits.
pub(super) unsafe fn launch(
    function: sys::CUfunction,
    stream: sys::CUstream,
    overlaps: bool,
    launch: &Launch<'_>,
) -> Result<(), DriverError> {
    let Launch {
        kernel,
        grid: [x, y, z],
        shared_bytes,
        args,
    } = *launch;
    let mut overlap = sys::CUlaunchAttribute {
        id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        pad: [0; 4],
        value: sys::CUlaunchAttributeValue {
            programmaticStreamSerializationAllowed: 1,
        },
    };
    let config = sys::CUlaunchConfig {
        gridDimX: x,
        gridDimY: y,
        gridDimZ: z,
        blockDimX: kernel.threads(),
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: shared_bytes,
        hStream: stream,
        attrs: &raw mut overlap,
        numAttrs: u32::from(overlaps),
    };
    let mut params = [args.as_ptr().cast_mut().cast::<c_void>()];
    // SAFETY: the caller's; the driver copies attributes and the one argument before it returns.
    unsafe {
        sys::cuLaunchKernelEx(
            &raw const config,
            function,
            params.as_mut_ptr(),
            std::ptr::null_mut(),
        )
    }
    .result()
    .map_err(failed(kernel.name()))
}
