//! Facts about the pool.

use super::*;
use std::sync::atomic::AtomicU32;

#[test]
fn every_task_runs_exactly_once() {
    for count in 1..=4 {
        let threads = CpuThreads::start(count).unwrap();
        assert_eq!(threads.count(), count);
        for tasks in [0, 1, 2, 3, 17, 500] {
            let runs: Vec<AtomicU32> = (0..tasks).map(|_| AtomicU32::new(0)).collect();
            threads.run(tasks, |task, worker| {
                assert!(worker < count);
                runs[task].fetch_add(1, Ordering::Relaxed);
            });
            assert!(runs.iter().all(|runs| runs.load(Ordering::Relaxed) == 1));
        }
    }
}

#[test]
fn many_short_jobs_see_their_own_closure() {
    let threads = CpuThreads::start(3).unwrap();
    for job in 0..20_000 {
        let sum = AtomicUsize::new(0);
        threads.run(3, |task, _| {
            sum.fetch_add(job + task, Ordering::Relaxed);
        });
        assert_eq!(sum.load(Ordering::Relaxed), 3 * job + 3);
    }
}

#[test]
fn a_panic_in_a_task_reaches_the_runner_and_the_pool_lives_on() {
    let threads = CpuThreads::start(3).unwrap();
    let result = catch_unwind(AssertUnwindSafe(|| {
        threads.run(100, |task, _| assert!(task != 63, "task 63"));
    }));
    assert!(result.is_err());
    let ran = AtomicUsize::new(0);
    threads.run(10, |_, _| {
        ran.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(ran.load(Ordering::Relaxed), 10);
}
