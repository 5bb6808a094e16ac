//! Which panics are reported.

use super::*;

fn panic_on(name: &str) {
    let thread = thread::Builder::new().name(name.to_owned());
    let thread = thread.spawn(|| panic!("on purpose")).unwrap();
    assert!(thread.join().is_err());
}

/// One test, because a process has one hook.
#[tokio::test]
async fn a_panic_on_a_vital_thread_is_reported_and_others_are_not() {
    const VITAL: [&str; 2] = ["pd-scheduler", "pd-kv-transfer"];
    let mut lost = LostThreads::watch(&VITAL);
    panic_on("pd-http");
    panic_on("pd-cpu-1");
    for name in VITAL {
        panic_on(name);
        let reason = lost.next().await;
        let start = format!("thread {name} panicked");
        assert!(reason.starts_with(&start), "{reason}");
        assert!(reason.contains("on purpose"), "{reason}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("pd-kv-transfer")
        .build()
        .unwrap();
    runtime.spawn(async { panic!("a task's") });
    assert!(lost.next().await.contains("a task's"));
    runtime.shutdown_background();
}
