//! Which ends of tasks are reported.

use super::*;
use std::future::{pending, ready};

#[tokio::test]
async fn a_task_that_panics_is_lost() {
    let vital = VitalTasks::new();
    vital.spawn("healthy", pending::<()>());
    vital.spawn("watch", async { panic!("on purpose") });
    assert_eq!(vital.lost().await, "watch");
}

#[tokio::test]
async fn a_task_that_ends_is_lost() {
    let vital = VitalTasks::new();
    assert!(vital.lost().now_or_never().is_none());
    vital.spawn("listener", ready(()));
    assert_eq!(vital.lost().await, "listener");
}
