//! Facts about tasks that panic.

use super::*;

fn mk_tasks() -> Tasks {
    Tasks::new(Handle::current())
}

#[tokio::test]
async fn the_first_panic_is_the_failure() {
    let tasks = mk_tasks();
    let failure = tasks.failure();
    tasks.spawn("quiet", async {});
    assert_eq!(failure.reason(), None);
    tasks.spawn("first", async { panic!("the {} is gone", "disk") });
    let reason = failure.clone().failed().await;
    assert_eq!(
        &*reason,
        "the first task of the KV transfer panicked: the disk is gone"
    );
    tasks.fail("second", &"later");
    assert_eq!(failure.reason(), Some(reason));
}

#[tokio::test]
async fn a_panic_of_an_endless_or_a_blocking_task_counts() {
    let tasks = mk_tasks();
    tasks.spawn_endless("endless", async {
        tokio::task::yield_now().await;
        panic!("gone")
    });
    assert!(tasks.failure().failed().await.contains("endless"));
    let tasks = mk_tasks();
    tasks.spawn_blocking("blocking", || panic!("gone"));
    assert!(tasks.failure().failed().await.contains("blocking"));
}

#[tokio::test]
async fn an_aborted_task_is_no_failure() {
    let tasks = mk_tasks();
    let task = tasks.spawn("aborted", std::future::pending());
    task.abort();
    let failure = tasks.failure();
    drop(tasks);
    let waited = tokio::time::timeout(
        std::time::Duration::from_millis(1),
        failure.clone().failed(),
    );
    assert!(waited.await.is_err());
    assert_eq!(failure.reason(), None);
}
