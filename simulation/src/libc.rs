//! The two functions of the C library by which a process learns time and randomness, as this program defines them.
//!
//! The linker takes ours, so they hold for everything in the process: hash maps, `tokio::select!`, `rand`, dates that a
//! dependency writes. Product code needs no second clock and no second generator. Until [`begin`] they are the kernel's.

#![allow(
    unsafe_code,
    reason = "the C library's functions are defined here, and the kernel's are called"
)]

use libc::{CLOCK_MONOTONIC, c_int, c_long, c_uint, c_void, clockid_t, size_t, ssize_t, timespec};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// Of random numbers, in all threads.
static IS_SEEDED: AtomicBool = AtomicBool::new(false);
static SEED: AtomicU64 = AtomicU64::new(0);
/// Nanoseconds since the simulation began.
static NOW_NS: AtomicU64 = AtomicU64::new(0);
/// How far the present host's wall clock is off, in nanoseconds.
static WALL_SKEW_NS: AtomicI64 = AtomicI64::new(0);

/// 2026-01-01, when every simulation begins.
const EPOCH: u64 = 1_767_225_600;
/// The monotonic clock's reading then: some processes take an age from it.
const UPTIME: u64 = 1_000_000;

thread_local! {
    /// Of time, in the simulation's own thread: others compute, and some of them wait by the kernel's clock.
    static IS_SIMULATED: Cell<bool> = const { Cell::new(false) };
    /// Every thread draws the same numbers, so it does not matter which began first.
    static DRAWN: Cell<u64> = const { Cell::new(0) };
}

/// From here on, this thread's time is what [`set_now`] says, and random numbers follow from `seed`. A thread that has drawn random
/// numbers before keeps what it has made of them, so the simulation runs on a fresh one.
pub(crate) fn begin(seed: u64) {
    SEED.store(seed, Ordering::SeqCst);
    IS_SEEDED.store(true, Ordering::SeqCst);
    IS_SIMULATED.set(true);
}

/// Sets both clocks: time since the beginning, and by how much the wall clock is off.
pub(crate) fn set_now(now: Duration, skew_ms: i64) {
    let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
    NOW_NS.store(now, Ordering::Relaxed);
    WALL_SKEW_NS.store(skew_ms * 1_000_000, Ordering::Relaxed);
}

fn next_random() -> u64 {
    // SplitMix64.
    let drawn = DRAWN.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    DRAWN.set(drawn);
    let mut mixed = drawn ^ SEED.load(Ordering::Relaxed).rotate_left(32);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// # Safety
/// As the C library's: `buf` holds `len` bytes that may be written.
// SAFETY: the signature is the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn getrandom(buf: *mut c_void, len: size_t, flags: c_uint) -> ssize_t {
    if !IS_SEEDED.load(Ordering::Relaxed) {
        // SAFETY: the caller's buffer, as it is.
        let read = unsafe { libc::syscall(libc::SYS_getrandom, buf, len, flags) };
        return ssize_t::try_from(read).unwrap_or(-1);
    }
    // SAFETY: the caller says that so many bytes may be written; they need not be initialised, since they are only
    // written to.
    let bytes = unsafe { std::slice::from_raw_parts_mut(buf.cast::<u8>(), len) };
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&next_random().to_le_bytes()[..chunk.len()]);
    }
    ssize_t::try_from(len).unwrap_or(ssize_t::MAX)
}

/// # Safety
/// As the C library's: `time` may be written.
// SAFETY: the signature is the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    if !IS_SIMULATED.get() {
        // SAFETY: the caller's pointer, as it is.
        let answer = unsafe { libc::syscall(libc::SYS_clock_gettime, clock as c_long, time) };
        return c_int::try_from(answer).unwrap_or(-1);
    }
    let since = NOW_NS.load(Ordering::Relaxed);
    let ns = if clock == CLOCK_MONOTONIC {
        since + UPTIME * 1_000_000_000
    } else {
        let wall = since + EPOCH * 1_000_000_000;
        wall.saturating_add_signed(WALL_SKEW_NS.load(Ordering::Relaxed))
    };
    let seconds = libc::time_t::try_from(ns / 1_000_000_000).unwrap_or(libc::time_t::MAX);
    let nanoseconds = c_long::try_from(ns % 1_000_000_000).unwrap_or_default();
    // SAFETY: the caller says that it may be written.
    unsafe {
        (*time).tv_sec = seconds;
        (*time).tv_nsec = nanoseconds;
    }
    0
}
