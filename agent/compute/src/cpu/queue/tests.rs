//! Proves the queue's bound, and that what borrows may run on it.

use super::*;

#[test]
fn a_full_queue_faults_instead_of_growing() {
    let queue = Queue::start(1, Isa::Scalar).unwrap();
    let (begun_tx, begun_rx) = mpsc::channel();
    let (release_tx, release_rx) = mpsc::channel::<()>();
    queue.push("wait", move |_| {
        begun_tx.send(()).expect("the test waits for it");
        assert!(release_rx.recv().is_err());
    });
    // The thread takes all that is there, so what follows must come after it has taken this.
    begun_rx.recv().expect("the command runs");
    for _ in 0..=COMMANDS_MAX {
        queue.push("nothing", |_| ());
    }
    let full = ComputeError::QueueFull {
        limit: COMMANDS_MAX,
    };
    assert_eq!(queue.health(), Err(full.clone()));
    assert_eq!(queue.read(None).wait(), Err(full));
    drop(release_tx);
}

#[test]
fn a_scoped_command_may_borrow_and_returns_its_result() {
    let queue = Queue::start(2, Isa::Scalar).unwrap();
    let words = [String::from("a"), String::from("b")];
    let joined = queue.run_scoped("join", |exec| (exec.threads.count(), words.concat()));
    assert_eq!(joined, Ok((2, String::from("ab"))));
}
