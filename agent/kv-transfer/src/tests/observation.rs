//! What managers report about transfers, rails, failures and peers.

use super::faults::ALL;
use super::fixture::{Fixture, Worker, dst_items, mk_layout, src_items};
use super::rails::{DST, SRC, assert_success, mk_pair, nics, sent, wait_for};
use crate::config::TransportChoice;
use crate::plan::{End, Tail, TransferPlan};
use crate::transport::rdma::dispatch::piece::{SOURCES_MAX, pieces};
use pd_protocol::KvPoll;
use pd_protocol::Transport;
use pd_protocol::layout::{ParallelLayout, RankId};

/// What one side reports about the request of `SRC` and `DST`; `None` where it sees nothing.
#[derive(Debug, PartialEq)]
struct Reported {
    bytes: Option<f64>,
    page_parts: Option<f64>,
    ranges: Option<f64>,
    writes: Option<f64>,
}

impl Reported {
    fn by(worker: &Worker, transport: &str) -> Self {
        let get = |name| worker.figures.get(name, &[("transport", transport)]);
        Self {
            bytes: get("kv_transfer_peer_bytes_total"),
            page_parts: get("kv_transfer_page_parts_total"),
            ranges: get("kv_transfer_ranges_total"),
            writes: get("kv_transfer_peer_writes_total"),
        }
    }
}

/// What the plan of the request says.
struct Planned {
    bytes: f64,
    page_parts: f64,
    /// Merged where prefill has them, where decode has them, and where both do.
    src_ranges: f64,
    dst_ranges: f64,
    ranges: f64,
    /// States and row too: copies over shm, writes over rdma.
    copies: f64,
    writes: f64,
}

impl Planned {
    fn new() -> Self {
        let layout = mk_layout();
        let end = End {
            layout: &layout,
            parallel: &ParallelLayout::SINGLE,
            rank: RankId::default(),
        };
        let plan = TransferPlan::new(end, end);
        let tail = |state_indices, metadata_buffer_index| Tail {
            state_indices,
            metadata_buffer_index,
        };
        let tail = plan.tail_ranges(tail(&src_items(), 1), tail(&dst_items(), 1));
        let tail_bytes: u64 = tail.iter().map(|range| range.len).sum();
        let whole = [plan.page_ranges(&SRC, &DST), tail].concat();
        let bytes = plan.page_bytes() * SRC.len() as u64 + tail_bytes;
        Self {
            bytes: bytes as f64,
            page_parts: plan.page_parts(SRC.len()) as f64,
            src_ranges: plan.src_page_spans(&SRC).len() as f64,
            dst_ranges: plan.dst_page_spans(&DST).len() as f64,
            ranges: plan.page_ranges(&SRC, &DST).len() as f64,
            copies: whole.len() as f64,
            writes: pieces(whole, SOURCES_MAX, 0).len() as f64,
        }
    }

    fn reported(&self, ranges: Option<f64>, writes: Option<f64>) -> Reported {
        Reported {
            bytes: Some(self.bytes),
            page_parts: ranges.map(|_| self.page_parts),
            ranges,
            writes,
        }
    }
}

#[test]
fn figures_are_those_of_the_plan() {
    let planned = Planned::new();
    let (src, dst) = (Some(planned.src_ranges), Some(planned.dst_ranges));
    let one_frame = Some(1.0);
    let nothing = planned.reported(None, None);
    let ranges = Some(planned.ranges);
    let every_copy = planned.reported(ranges, Some(planned.copies));
    let every_write = planned.reported(ranges, Some(planned.writes));
    for (transport, name, prefill, decode) in [
        (
            TransportChoice::Only(Transport::Tcp),
            "tcp",
            &planned.reported(src, one_frame),
            &planned.reported(dst, one_frame),
        ),
        (
            TransportChoice::Only(Transport::Shm),
            "shm",
            &nothing,
            &every_copy,
        ),
        (
            TransportChoice::Only(Transport::Rdma),
            "rdma",
            &every_write,
            &nothing,
        ),
    ] {
        let pair = Fixture::new(transport);
        assert_success(&pair, 1, sent(&pair, 1));
        for (worker, expected) in [(&pair.prefill, prefill), (&pair.decode, decode)] {
            assert_eq!(Reported::by(worker, name), *expected, "{name}");
            let get = |name| worker.figures.get(name, &[]);
            assert_eq!(get("kv_fences_closed"), Some(0.0), "{name}");
            assert_eq!(get("kv_fence_release_seconds"), Some(1.0), "{name}");
            assert_eq!(get("kv_rooms_failed_total"), Some(0.0), "{name}");
        }
        let prefills = pair
            .decode
            .transport_report
            .snapshot()
            .into_keys()
            .collect();
        assert_eq!(pair.decode.figures.values_of("peer"), prefills);
        assert_eq!(pair.prefill.figures.values_of("peer").len(), 1);
    }
}

#[test]
fn every_write_of_a_nic_is_timed_and_none_stays_in_flight() {
    let planned = Planned::new();
    let pair = mk_pair(&["a"]);
    let own = nics(&pair.prefill);
    assert_success(&pair, 1, sent(&pair, 1));
    let name = own.name("a");
    let get = |figure| pair.prefill.figures.get(figure, &[("nic", name.as_str())]);
    let writes = Some(planned.writes);
    assert_eq!(get("kv_transfer_peer_bytes_total"), Some(planned.bytes));
    assert_eq!(get("kv_transfer_completion_seconds"), writes);
    wait_for("all is reported", || {
        get("kv_transfer_in_flight_bytes") == Some(0.0)
    });
    own.freeze("a", true);
    let room = sent(&pair, 2);
    wait_for("all is posted", || {
        get("kv_transfer_in_flight_bytes") == Some(planned.bytes)
    });
    assert_eq!(get("kv_transfer_completion_seconds"), writes);
    own.freeze("a", false);
    assert_success(&pair, 2, room);
    wait_for("all is reported", || {
        get("kv_transfer_in_flight_bytes") == Some(0.0)
    });
    assert_eq!(get("kv_transfer_retries_total"), Some(0.0));
}

#[test]
fn a_rail_that_fails_is_counted_and_shown() {
    let pair = mk_pair(&["a", "b"]);
    assert_success(&pair, 1, sent(&pair, 1));
    let workers = [&pair.prefill, &pair.decode];
    let all_up = || {
        let states = workers.map(|worker| worker.figures.get("kv_rail_state", &[]));
        states == [Some(4.0); 2]
    };
    wait_for("both rails are up", all_up);
    let own = nics(&pair.prefill);
    own.freeze("a", true);
    own.freeze("b", true);
    let room = sent(&pair, 2);
    wait_for("writes are held", || own.held("a") + own.held("b") > 0);
    let (holds, other) = if own.held("a") > 0 {
        ("a", "b")
    } else {
        ("b", "a")
    };
    own.cut(holds, true);
    own.freeze(holds, false);
    own.freeze(other, false);
    assert_success(&pair, 2, room);

    let (failed, other) = (own.name(holds), own.name(other));
    let get = |name, labels: &[(&str, &str)]| pair.prefill.figures.get(name, labels).unwrap();
    let by_network = [("nic", failed.as_str()), ("layer", "network")];
    assert!(get("kv_rail_failures_total", &by_network) >= 1.0);
    assert!(get("kv_transfer_retries_total", &[("nic", other.as_str())]) >= 1.0);
    assert_eq!(
        get("kv_transfer_retries_total", &[("nic", failed.as_str())]),
        0.0
    );
    assert!(get("kv_rail_state", &[("nic", failed.as_str())]) < 2.0);
    assert_eq!(get("kv_rail_state", &[("nic", other.as_str())]), 2.0);
    let seen = [("peer_nic", failed.as_str())];
    assert!(pair.decode.figures.get("kv_rail_state", &seen) < Some(2.0));
    own.cut(holds, false);
    wait_for("both rails are up again", all_up);
}

#[test]
fn a_peer_that_leaves_takes_its_series() {
    for transport in ALL {
        for is_prefill in [true, false] {
            let pair = Fixture::new(transport);
            assert_success(&pair, 1, sent(&pair, 1));
            let Fixture {
                prefill,
                decode,
                bootstrap: _bootstrap,
            } = pair;
            let (leaves, stays) = if is_prefill {
                (prefill, decode)
            } else {
                (decode, prefill)
            };
            assert_eq!(stays.figures.values_of("peer").len(), 1);
            drop(leaves);
            wait_for("its series are gone", || {
                stays.figures.values_of("peer").is_empty()
            });
            assert!(stays.figures.values_of("peer_nic").is_empty());
        }
    }
}

#[test]
fn a_room_that_fails_is_counted_with_its_abort() {
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
        let aborts = |worker: &Worker, name| worker.figures.get(name, &[]);
        wait_for("the abort was answered", || {
            aborts(&pair.decode, "kv_aborts_answered_total") == Some(1.0)
        });
        assert_eq!(aborts(&pair.decode, "kv_aborts_sent_total"), Some(1.0));
        assert!(aborts(&pair.prefill, "kv_aborts_answered_total") >= Some(1.0));
        // The other side's failure is reported, too, and counts for nothing.
        let rooms = |worker: &Worker| worker.figures.get("kv_rooms_failed_total", &[]);
        assert_eq!(
            (rooms(&pair.decode), rooms(&pair.prefill)),
            (Some(1.0), Some(1.0))
        );
    }
}
