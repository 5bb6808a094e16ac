//! Facts about what is shown.

use super::*;
use crate::tests::figures::Figures;

#[test]
fn failures_are_shown_before_the_first() {
    let metrics = TransferMetrics::default();
    let figures = Figures::of(&metrics);
    let labels = [("stage", "transferring"), ("layer", "peer")];
    let failed = || figures.get("kv_rooms_failed_total", &labels);
    assert_eq!(failed(), Some(0.0));
    metrics.room_failed(KvPoll::Transferring, FailureLayer::Peer);
    assert_eq!(failed(), Some(1.0));
}
