//! That growth beyond the bounds is found.

use super::*;

fn mk_footprint(resident_mib: u64, device_mib: Option<u64>) -> Footprint {
    Footprint {
        resident_mib: vec![
            ("router".to_owned(), 20),
            ("decode".to_owned(), resident_mib),
        ],
        device_mib,
    }
}

#[test]
fn one_process_that_grows_is_found() {
    let before = mk_footprint(100, None);
    let within = mk_footprint(100 + RESIDENT_GROWTH_MIB, None);
    assert!(within.resident_since(&before).is_ok());
    let beyond = mk_footprint(101 + RESIDENT_GROWTH_MIB, None);
    let why = beyond.resident_since(&before).unwrap_err().to_string();
    assert!(why.starts_with("decode grew from 100 to 149 MiB"), "{why}");
}

#[test]
fn a_device_without_reports_is_not_called_well() {
    let before = mk_footprint(1, Some(500));
    assert!(
        mk_footprint(1, Some(500 + DEVICE_GROWTH_MIB))
            .device_since(&before)
            .unwrap()
            .is_some()
    );
    assert!(
        mk_footprint(1, Some(501 + DEVICE_GROWTH_MIB))
            .device_since(&before)
            .is_err()
    );
    assert!(
        mk_footprint(1, None)
            .device_since(&before)
            .unwrap()
            .is_none()
    );
}
