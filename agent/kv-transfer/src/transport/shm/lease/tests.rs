//! Facts about leases.

use super::*;

#[test]
fn a_lease_holds_until_it_is_dropped_and_its_word_is_never_valid_again() {
    let table = Arc::new(LeaseTable::allocate().unwrap());
    let region = table.region().clone();
    let lease = table.take().unwrap();
    let (idx, value) = (lease.idx, lease.value);
    assert!(still_holds(&region, idx, value));
    drop(lease);
    assert!(!still_holds(&region, idx, value));
    let next = table.take().unwrap();
    assert_eq!(next.idx, idx);
    assert!(!still_holds(&region, idx, value));
    assert!(still_holds(&region, idx, next.value));
}

#[test]
fn a_word_beyond_the_table_never_holds() {
    let table = LeaseTable::allocate().unwrap();
    assert!(!still_holds(table.region(), u32::MAX, 0));
}

#[test]
fn leases_end_and_come_back() {
    let table = Arc::new(LeaseTable::allocate().unwrap());
    let all: Vec<_> = std::iter::from_fn(|| table.take()).collect();
    assert_eq!(all.len(), LEASES);
    drop(all);
    assert!(table.take().is_some());
}
