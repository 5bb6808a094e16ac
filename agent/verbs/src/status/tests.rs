//! Statuses by name.

use super::*;

#[test]
fn the_statuses_that_are_asked_for_by_name_have_that_name() {
    let named = [
        (WcStatus::WR_FLUSH_ERR, "IBV_WC_WR_FLUSH_ERR"),
        (WcStatus::REM_ACCESS_ERR, "IBV_WC_REM_ACCESS_ERR"),
        (WcStatus::RETRY_EXC_ERR, "IBV_WC_RETRY_EXC_ERR"),
        (WcStatus::RNR_RETRY_EXC_ERR, "IBV_WC_RNR_RETRY_EXC_ERR"),
    ];
    for (status, name) in named {
        assert_eq!(status.name(), name);
    }
}

#[test]
fn a_status_shows_name_and_code() {
    assert_eq!(WcStatus(12).to_string(), "IBV_WC_RETRY_EXC_ERR (12)");
}

#[test]
fn an_unknown_status_does_not_panic() {
    assert_eq!(WcStatus(99).to_string(), "IBV_WC_? (99)");
    assert!(WcStatus(u32::MAX).advice().contains("newer"));
}
