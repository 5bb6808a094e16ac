//! The allocator of agents and routers: after a burst of requests, what was freed goes back to the kernel.
//!
//! mimalloc keeps the pages of a thread for that thread, also those whose blocks other threads have freed, and gives
//! them back when it next looks at them, which may be never. So the threads of a runtime look at theirs when they have
//! nothing to do.

pub use mimalloc::MiMalloc as Allocator;

use std::cell::Cell;
use std::io;
use std::time::{Duration, Instant};
use tokio::runtime::Builder;

/// Between two looks of a thread: what it uses again and again is not given back and taken each time.
const PERIOD: Duration = Duration::from_secs(10);

thread_local! {
    static NEXT: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// A runtime with several threads, which give freed memory back to the kernel when they are about to wait, every ten
/// seconds at most. It does so only in a program whose global allocator is [`Allocator`].
#[must_use]
pub fn runtime() -> Builder {
    let mut builder = Builder::new_multi_thread();
    builder.on_thread_park(collect_if_due);
    builder
}

/// Makes this process hold only what it has touched: mimalloc asks for huge pages, of which a body that stops after a few
/// bytes would take one. Programs that compute over large memory do better with them.
///
/// # Errors
/// The kernel has no such setting.
pub fn refuse_huge_pages() -> io::Result<()> {
    Ok(rustix::thread::disable_transparent_huge_pages(true)?)
}

/// Gives the kernel what this thread has freed, unless it did so within the last ten seconds. For threads outside of a
/// [`runtime`] that are about to wait.
pub fn collect_if_due() {
    let now = Instant::now();
    if NEXT.get().is_none_or(|next| next <= now) {
        collect();
        NEXT.set(Some(now + PERIOD));
    }
}

/// Gives the kernel what this thread's pages no longer hold, and the free pages of all threads.
#[allow(unsafe_code, reason = "the crate mimalloc has no safe call for it")]
fn collect() {
    // SAFETY: it may be called by any thread at any time; it looks at the calling thread's own pages and at pages that
    // are free.
    unsafe { libmimalloc_sys::mi_collect(true) }
}
