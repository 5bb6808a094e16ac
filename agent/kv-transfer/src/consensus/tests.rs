//! Facts about ranks that agree: over real connections between managers, and the table alone.

use super::*;
use crate::config::TransportChoice;
use crate::tests::fixture::{Worker, mk_layout, mk_room, mk_transfer, next_boot};
use pd_protocol::Role;
use pd_protocol::Transport;
use proptest::prelude::*;
use std::io::Write;

fn mk_worker() -> Worker {
    let transfer = mk_transfer(TransportChoice::Only(Transport::Tcp));
    Worker::start(Role::Decode, &next_boot(), None, &mk_layout(), transfer)
}

fn mk_reporter(worker: &Worker, board: &PollBoard, rank: usize) -> PollReporter {
    let leader = ("127.0.0.1", board.port());
    worker.manager.poll_reporter(leader, rank).unwrap()
}

fn agreed(board: &PollBoard, room: u64, own: KvPoll) -> KvPoll {
    board.poll_and_all_reduce(&[(mk_room(room), own)])[0]
}

#[test]
fn a_room_is_as_far_as_its_slowest_rank_and_stays_where_it_ended() {
    let (leader, follower) = (mk_worker(), mk_worker());
    let board = leader.manager.poll_board(2).unwrap();
    let ranks = [0, 1].map(|rank| mk_reporter(&follower, &board, rank));
    let room = mk_room(7);
    assert_eq!(
        agreed(&board, 7, KvPoll::Success),
        KvPoll::Bootstrapping,
        "no other rank has reported"
    );
    ranks[0].report(room, KvPoll::Success, None);
    ranks[1].report(room, KvPoll::Transferring, None);
    leader.wait("both have reported", || {
        agreed(&board, 7, KvPoll::Success) == KvPoll::Transferring
    });
    assert_eq!(
        agreed(&board, 7, KvPoll::WaitingForInput),
        KvPoll::WaitingForInput
    );
    let reason = FailureReason::network("the rail broke");
    ranks[1].report(room, KvPoll::Failed, Some(&reason));
    leader.wait("the failure is known", || {
        agreed(&board, 7, KvPoll::Success) == KvPoll::Failed
    });
    let reason = board.failure_reason(room).unwrap().to_string();
    assert_eq!(
        reason,
        "peer: rank 1 on another node: network: the rail broke"
    );
    ranks[1].report(room, KvPoll::Success, None);
    ranks[1].report(mk_room(8), KvPoll::Success, None);
    ranks[0].report(mk_room(8), KvPoll::Success, None);
    leader.wait("a later room is through", || {
        agreed(&board, 8, KvPoll::Success) == KvPoll::Success
    });
    assert_eq!(
        agreed(&board, 7, KvPoll::Success),
        KvPoll::Failed,
        "latched"
    );
    for rank in &ranks {
        rank.close(room);
        rank.report(mk_room(9), KvPoll::Transferring, None);
    }
    leader.wait("the room is closed", || {
        agreed(&board, 9, KvPoll::Success) == KvPoll::Transferring
    });
    assert_eq!(
        agreed(&board, 7, KvPoll::Success),
        KvPoll::Bootstrapping,
        "nothing of a closed room is kept"
    );
}

#[test]
fn a_rank_that_is_lost_fails_what_it_had_not_ended() {
    let (leader, follower) = (mk_worker(), mk_worker());
    let board = leader.manager.poll_board(1).unwrap();
    let rank = mk_reporter(&follower, &board, 0);
    rank.report(mk_room(1), KvPoll::Success, None);
    rank.report(mk_room(2), KvPoll::Transferring, None);
    leader.wait("it has reported", || {
        agreed(&board, 2, KvPoll::Success) == KvPoll::Transferring
    });
    let second = mk_reporter(&follower, &board, 0);
    follower.wait("a rank has one connection", || second.is_lost());
    drop(follower);
    leader.wait("the loss is known", || {
        agreed(&board, 2, KvPoll::Success) == KvPoll::Failed
    });
    assert_eq!(agreed(&board, 1, KvPoll::Success), KvPoll::Success);
    let reason = board.failure_reason(mk_room(2)).unwrap().to_string();
    assert!(
        reason.starts_with("peer: rank 0 on another node is lost"),
        "{reason}"
    );
    assert_eq!(board.failure_reason(mk_room(1)), None);
}

#[test]
fn a_rank_that_never_comes_is_lost() {
    let transfer = crate::TransferConfig {
        bootstrap_timeout: std::time::Duration::from_millis(20),
        ..mk_transfer(TransportChoice::Only(Transport::Tcp))
    };
    let leader = Worker::start(Role::Decode, &next_boot(), None, &mk_layout(), transfer);
    let board = leader.manager.poll_board(1).unwrap();
    leader.wait("it is given up", || {
        agreed(&board, 1, KvPoll::Success) == KvPoll::Failed
    });
    let reason = board.failure_reason(mk_room(1)).unwrap().to_string();
    assert!(reason.ends_with("it did not come in 20ms"), "{reason}");
}

#[test]
fn a_stranger_on_the_port_is_no_rank() {
    let (leader, follower) = (mk_worker(), mk_worker());
    let board = leader.manager.poll_board(1).unwrap();
    let mut stranger = std::net::TcpStream::connect(("127.0.0.1", board.port())).unwrap();
    stranger.write_all(&[0xff; 64]).unwrap();
    let unexpected = mk_reporter(&follower, &board, 5);
    follower.wait("there is no such rank", || unexpected.is_lost());
    let rank = mk_reporter(&follower, &board, 0);
    rank.report(mk_room(1), KvPoll::Success, None);
    leader.wait("the rank is heard", || {
        agreed(&board, 1, KvPoll::Success) == KvPoll::Success
    });
}

proptest! {
    #[test]
    fn rooms_of_a_rank_never_go_back_for_any_report(polls in prop::collection::vec(0u8..=4, 1..12)) {
        let mut rank = Remote::default();
        let room = mk_room(3);
        let mut before = KvPoll::Bootstrapping;
        for poll in polls {
            let poll = KvPoll::try_from(poll).unwrap();
            rank.take(Report::Poll { room, poll, reason: String::new() }).unwrap();
            let now = rank.poll(room);
            prop_assert_eq!(now, before.advance(poll));
            before = now;
        }
    }

    #[test]
    fn bytes_of_strangers_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut reader = bytes.as_slice();
        let read = async {
            while let Ok(Some(_)) = Report::read(&mut reader).await {}
        };
        futures_util::FutureExt::now_or_never(read).expect("a slice never waits");
    }
}
