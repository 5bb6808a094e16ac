//! Facts about fences.

use super::*;
use crate::metrics::TransferMetrics;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn a_closed_fence_is_released_when_the_last_one_leaves() {
    let wakes = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&wakes);
    let waker: Waker = Arc::new(move || {
        counter.fetch_add(1, Ordering::Relaxed);
    });
    let metrics = TransferMetrics::default().fences().clone();
    let fence = Fence::new(waker, metrics.clone());
    let (first, second) = (fence.enter().unwrap(), fence.enter().unwrap());
    fence.close();
    assert!(fence.enter().is_none());
    drop(first);
    assert!(!fence.is_released());
    assert_eq!(metrics.figures(), (1, 0), "it is held, and shown so");
    drop(second);
    assert!(fence.is_released());
    assert_eq!(wakes.load(Ordering::Relaxed), 1);
    fence.close();
    assert_eq!(metrics.figures(), (0, 1), "closed and released once");
}

#[test]
fn an_open_fence_is_not_released() {
    let metrics = TransferMetrics::default().fences().clone();
    let fence = Fence::new(Arc::new(|| {}), metrics.clone());
    drop(fence.enter());
    assert!(!fence.is_released());
    assert_eq!(metrics.figures(), (0, 0));
}

#[test]
fn an_unused_fence_is_released_at_once() {
    let metrics = TransferMetrics::default().fences().clone();
    let fence = Fence::new(Arc::new(|| {}), metrics.clone());
    fence.close();
    assert!(fence.is_released());
    assert_eq!(metrics.figures(), (0, 1));
}
