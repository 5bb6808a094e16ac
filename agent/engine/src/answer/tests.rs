//! Facts about readers that fall behind.

use super::*;
use crate::command;

fn mk_event(top: usize) -> TokenEvent {
    TokenEvent {
        token_ids: vec![7],
        logprobs: vec![TokenLogprob {
            token: 7,
            logprob: Some(0.0),
            top: vec![(0, 0.0); top],
            asked: Vec::new(),
        }],
        ..TokenEvent::default()
    }
}

#[test]
fn a_reader_that_keeps_up_gets_everything_and_leaves_nothing() {
    let (commands_tx, commands_rx) = command::queue();
    let (mut sender, mut receiver) = answer(RequestId(1), commands_tx);
    let per_event = bytes_of(&mk_event(100));
    for _ in 0..2 * WAITING_BYTES_MAX / per_event {
        sender.send(mk_event(100));
        assert_eq!(receiver.blocking_recv(), Some(mk_event(100)));
    }
    assert_eq!(receiver.waiting.load(Ordering::Relaxed), 0);
    assert!(commands_rx.is_empty());
}

#[test]
fn a_reader_that_does_not_read_loses_its_answer_once() {
    let (commands_tx, commands_rx) = command::queue();
    let (mut sender, mut receiver) = answer(RequestId(1), commands_tx);
    let per_event = bytes_of(&mk_event(100));
    for _ in 0..4 * WAITING_BYTES_MAX / per_event {
        sender.send(mk_event(100));
    }
    assert!(receiver.waiting.load(Ordering::Relaxed) < WAITING_BYTES_MAX + 2 * per_event);
    let aborts: Vec<Command> = commands_rx.try_iter().collect();
    assert!(
        matches!(aborts[..], [Command::Abort(RequestId(1))]),
        "{aborts:?}"
    );
    drop(sender);
    let mut last = None;
    while let Some(event) = receiver.blocking_recv() {
        assert_eq!(last, None, "nothing follows the end");
        last = event.finish;
    }
    let Some(FinishReason::Abort { reason, retriable }) = last else {
        panic!("it ends with its abort");
    };
    assert!(reason.starts_with("4 MiB of the answer wait") && !retriable);
}

#[test]
fn one_event_may_be_of_any_size() {
    let (commands_tx, commands_rx) = command::queue();
    let (mut sender, mut receiver) = answer(RequestId(1), commands_tx);
    let large = WAITING_BYTES_MAX / 4;
    sender.send(mk_event(large));
    assert_eq!(receiver.blocking_recv(), Some(mk_event(large)));
    sender.send(mk_event(1));
    assert!(commands_rx.is_empty());
}
