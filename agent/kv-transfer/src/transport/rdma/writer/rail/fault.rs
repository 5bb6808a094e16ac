//! The layer at fault for what fails of a rail.

use crate::failure::FailureReason;
use pd_verbs::{WcStatus, WorkError};

pub(super) fn of_device(why: impl ToString) -> FailureReason {
    FailureReason::device(why.to_string())
}

pub(super) fn of_network(why: impl ToString) -> FailureReason {
    FailureReason::network(why.to_string())
}

pub(super) fn of_peer(why: impl ToString) -> FailureReason {
    FailureReason::peer(why.to_string())
}

/// The layer at fault for a failed write, by its status.
pub(super) fn of_work(error: &WorkError) -> FailureReason {
    match error.status {
        WcStatus::RETRY_EXC_ERR => of_network(error),
        WcStatus::RNR_RETRY_EXC_ERR | WcStatus::REM_INV_REQ_ERR | WcStatus::REM_ACCESS_ERR => {
            of_peer(error)
        }
        _ => of_device(error),
    }
}
