//! Rows of running and of pre-allocated requests, and the slots they name.

use super::*;

fn mk_spaces(page_size: usize) -> Spaces {
    Spaces {
        page_size,
        window: None,
    }
}

#[test]
fn pre_allocated_rows_do_not_count_as_running() {
    let mut pool = ReqToTokenPool::new(1, 2, mk_spaces(4));
    let running = pool.alloc().expect("a row");
    assert_eq!(pool.alloc(), None);
    let waiting = pool.pre_alloc().expect("a row of the extra ones");
    assert!(pool.pre_alloc().is_some());
    assert_eq!(pool.pre_alloc(), None);
    assert!(!pool.try_promote(waiting));
    pool.free(running);
    assert!(pool.try_promote(waiting));
    assert!(pool.pre_alloc().is_some());
    assert_eq!(pool.in_use(), 3);
}

#[test]
fn a_slot_follows_from_its_page() {
    let mut pool = ReqToTokenPool::new(1, 0, mk_spaces(4));
    let row = pool.alloc().expect("a row");
    pool.pages_mut(row).extend([PageIdx(7), PageIdx(2)]);
    assert_eq!(pool.slot(row, 3), 31);
    assert_eq!(pool.slot(row, 4), 8);
    assert_eq!(pool.free(row).0, [PageIdx(7), PageIdx(2)]);
    assert!(pool.alloc().is_some_and(|row| pool.pages(row).is_empty()));
}
