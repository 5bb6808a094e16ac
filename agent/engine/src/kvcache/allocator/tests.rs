//! Pages are handed out once, in runs, and freed once.

use super::*;
use crate::kvcache::PageIdx;

#[test]
fn too_large_a_request_takes_nothing() {
    let mut allocator = Allocator::<PageIdx>::new(3);
    let mut pages = Vec::new();
    assert!(!allocator.try_alloc(4, &mut pages));
    assert!(pages.is_empty());
    assert_eq!(allocator.free_len(), 3);
}

#[test]
fn freed_runs_come_back_as_runs() {
    let mut allocator = Allocator::<PageIdx>::new(8);
    let mut pages = Vec::new();
    assert!(allocator.try_alloc(6, &mut pages));
    assert_eq!(pages, (0..6).map(PageIdx).collect::<Vec<_>>());
    allocator.free(&pages[2..5], Owner::Held);
    let mut again = Vec::new();
    assert!(allocator.try_alloc(3, &mut again));
    assert_eq!(again, pages[2..5]);
}

#[test]
#[should_panic(expected = "PageIdx(0) is Free, not Held")]
fn a_page_is_not_freed_twice() {
    let mut allocator = Allocator::<PageIdx>::new(1);
    let mut pages = Vec::new();
    assert!(allocator.try_alloc(1, &mut pages));
    allocator.free(&pages, Owner::Held);
    allocator.free(&pages, Owner::Held);
}
