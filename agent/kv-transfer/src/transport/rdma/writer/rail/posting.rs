//! Writes over a rail that is up.

use super::fault::{of_device, of_peer};
use super::{Rail, State};
use crate::failure::FailureReason;
use crate::transport::rdma::dispatch::{Post, TransferId, piece::WorkItem};
use pd_verbs::Write;

/// Of a batch, every fourth write and the last have a completion of their own: rates and silences show soon enough.
const SIGNALLED_EVERY: usize = 4;

impl Rail {
    /// Posts to a lane, with one doorbell. `immediate` makes the number that ends a transfer.
    pub(in super::super) fn post(
        &mut self,
        lane: usize,
        posts: &[Post],
        immediate: impl Fn(TransferId, u8, u8) -> u32,
    ) -> Result<(), FailureReason> {
        let State::Up(ends) = &mut self.state else {
            // It failed in this round, and its posts were taken back.
            return Ok(());
        };
        let mut sources = Vec::with_capacity(posts.len());
        for post in posts {
            sources.push(match post.item {
                WorkItem::Piece(piece) => {
                    let region = &self.nic.regions[piece.src_region];
                    let sources = piece.sources().iter();
                    let ranges = sources.map(|source| region.range(source.offset, source.len));
                    ranges.collect::<Result<_, _>>().map_err(of_device)?
                }
                WorkItem::Final { .. } => Vec::new(),
            });
        }
        let mut writes = Vec::with_capacity(posts.len());
        for (post, source) in posts.iter().zip(&sources) {
            let (region, offset, len, immediate) = match post.item {
                WorkItem::Piece(piece) => {
                    let len = u64::from(piece.len);
                    (piece.dst_region, piece.dst_offset, len, None)
                }
                WorkItem::Final { attempt, lanes } => {
                    (0, 0, 0, Some(immediate(post.transfer, attempt, lanes)))
                }
            };
            let dst = ends.regions[region].at(offset, len);
            writes.push(Write {
                src: source,
                dst: dst.map_err(of_peer)?,
                immediate,
                tag: post.seq,
                signalled: writes.len() + 1 == posts.len() || writes.len() % SIGNALLED_EVERY == 0,
            });
        }
        let taken = ends.lanes[lane].post(&writes).map_err(of_device)?;
        if taken < writes.len() {
            let why = format!("a lane took {taken} of {} writes", writes.len());
            return Err(of_device(why));
        }
        let is_retry =
            |post: &&Post| matches!(post.item, WorkItem::Piece(piece) if piece.is_retry());
        let retries = posts.iter().filter(is_retry).count();
        self.metrics.posted_again(retries);
        Ok(())
    }
}
