//! What managers tell of rooms and of their memory.

use super::faults::ALL;
use super::fixture::{Fixture, Worker};
use super::rails::{assert_success, sent, wait_for};
use pd_protocol::KvPoll;

#[test]
fn memory_that_is_released_is_counted() {
    for transport in ALL {
        let pair = Fixture::new(transport);
        assert_success(&pair, 1, sent(&pair, 1));
        for worker in [&pair.prefill, &pair.decode] {
            let get = |name| worker.figures.get(name, &[]);
            assert_eq!(get("kv_fences_closed"), Some(0.0));
            assert_eq!(get("kv_fence_release_seconds"), Some(1.0));
            assert_eq!(get("kv_rooms_failed_total"), Some(0.0));
        }
    }
}

#[test]
fn a_room_that_fails_is_counted() {
    for transport in ALL {
        let pair = Fixture::new(transport);
        let (sender, receiver) = pair.open(7, &[1, 2], 0);
        sender.init(2, 0);
        sender.send(&[5], None);
        pair.decode.wait("the first chunk comes", || {
            receiver.poll() == KvPoll::Transferring
        });
        receiver.abort();
        pair.wait_end(&sender, &receiver);
        let failed = |worker: &Worker, layer| {
            let labels = [("stage", "transferring"), ("layer", layer)];
            worker.figures.get("kv_rooms_failed_total", &labels)
        };
        wait_for("both are counted", || {
            failed(&pair.decode, "application") == Some(1.0)
                && failed(&pair.prefill, "peer") == Some(1.0)
        });
        // That the other side failed, too, is told of, and counts for nothing.
        let rooms = |worker: &Worker| worker.figures.get("kv_rooms_failed_total", &[]);
        assert_eq!(
            (rooms(&pair.decode), rooms(&pair.prefill)),
            (Some(1.0), Some(1.0))
        );
    }
}
