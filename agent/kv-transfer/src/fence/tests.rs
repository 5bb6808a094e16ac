//! Facts about fences.

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn a_closed_fence_is_released_when_the_last_one_leaves() {
    let wakes = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&wakes);
    let fence = Fence::new(Arc::new(move || {
        counter.fetch_add(1, Ordering::Relaxed);
    }));
    let (first, second) = (fence.enter().unwrap(), fence.enter().unwrap());
    fence.close();
    assert!(fence.enter().is_none());
    drop(first);
    assert!(!fence.is_released());
    drop(second);
    assert!(fence.is_released());
    assert_eq!(wakes.load(Ordering::Relaxed), 1);
}

#[test]
fn an_open_fence_is_not_released() {
    let fence = Fence::new(Arc::new(|| {}));
    drop(fence.enter());
    assert!(!fence.is_released());
}
