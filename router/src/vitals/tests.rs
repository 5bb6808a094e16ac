//! Which ends of tasks are reported.

use super::*;

#[tokio::test]
async fn a_task_that_panics_is_reported_with_its_words() {
    let vitals = Vitals::default();
    vitals.spawn("probe", async { panic!("on {}", "purpose") });
    let lost = vitals.lost().await;
    assert_eq!(
        (lost.task, lost.reason.as_str()),
        ("probe", "it panicked: on purpose")
    );
    vitals.report("watch", "later");
    assert_eq!(vitals.lost().await, lost, "the first counts");
}

#[tokio::test]
async fn a_task_that_comes_to_its_end_is_not() {
    let vitals = Vitals::default();
    vitals.spawn("probe", async {}).await.unwrap();
    assert!(vitals.lost().now_or_never().is_none());
}
