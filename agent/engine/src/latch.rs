//! `Latch`: what happens once, for those who ask and those who wait.

use parking_lot::{Condvar, Mutex};
use std::sync::Arc;

#[derive(Debug, Default)]
pub(crate) struct Latch {
    is_set: Mutex<bool>,
    changed: Condvar,
}

/// Sets a latch when it is dropped, even by a panic.
#[derive(Debug)]
pub(crate) struct SetOnDrop(pub(crate) Arc<Latch>);

// === impl Latch ===

impl Latch {
    pub(crate) fn is_set(&self) -> bool {
        *self.is_set.lock()
    }

    /// Blocks until it is set.
    pub(crate) fn wait(&self) {
        let mut is_set = self.is_set.lock();
        self.changed.wait_while(&mut is_set, |is_set| !*is_set);
    }

    fn set(&self) {
        *self.is_set.lock() = true;
        self.changed.notify_all();
    }
}

// === impl SetOnDrop ===

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.set();
    }
}
