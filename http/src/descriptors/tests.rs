//! Facts about open files.

use super::*;

#[test]
fn connections_leave_files_for_what_they_need_beside_themselves() {
    assert_eq!(fitting(None, 16384, 3), 16384);
    assert_eq!(fitting(Some(1 << 20), 16384, 3), 16384);
    assert_eq!(fitting(Some(1024), 16384, 3), 325);
    assert_eq!(fitting(Some(64), 16384, 3), 5);
    assert_eq!(fitting(Some(8), 16384, 3), 4);
    assert_eq!(fitting(Some(8), 2, 3), 2);
}
