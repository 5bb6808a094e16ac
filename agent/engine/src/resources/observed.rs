//! What an observer gets to see of requests; nothing is done for engines without one.

use super::Resources;
use crate::kvcache::StateSlot;
use crate::kvcache::pool::ReqKv;
use crate::observe::{Admitted, Observation, Payload, PayloadHash, Point, RecordedGrammar};
use crate::ranks::PageSpan;
use crate::req::Req;
use pd_compute::ComputeError;
use pd_kv_transfer::ChunkReport;
use std::ops::Range;

// === impl Resources ===

impl Resources {
    pub(crate) fn observe_admitted(&self, req: &Req) {
        let grammar = req.grammar.as_ref();
        self.observe_with(req, || {
            Ok(Point::Admitted(Admitted {
                input_ids: req.tokens.clone(),
                sampling: req.sampling.clone(),
                choice: req.choice,
                seed: req.seed,
                grammar: grammar.map(|grammar| RecordedGrammar::of(grammar.source())),
            }))
        });
    }

    pub(crate) fn observe_sent(&self, req: &Req, chunk: &ChunkReport) {
        self.observe_with(req, || {
            Ok(Point::Sent {
                bytes: chunk.bytes,
                duration_ns: u64::try_from(chunk.duration.as_nanos()).unwrap_or(u64::MAX),
            })
        });
    }

    /// The request's pages in `pages`, by their places, as `point`; with `state`, its state, too.
    pub(crate) fn observe_pages(
        &mut self,
        req: &Req,
        kv: &ReqKv,
        pages: Range<usize>,
        state: Option<StateSlot>,
        point: fn(Payload) -> Point,
    ) {
        let is_empty = pages.is_empty() && state.is_none();
        if self.observing.is_none() || is_empty || req.moves_nothing() {
            return;
        }
        let page_size = self.cache.page_size();
        let all = self.cache.req_to_token().pages(kv.idx);
        let row = self.cache.req_to_token().window(kv.idx);
        // What the prompt's window leaves behind is moved to nowhere.
        let kept_from = self.cache.spaces().first_seen(req.prompt_len);
        let window = |place| row.filter(|_| place >= kept_from)?.live_page(place);
        let spans: Vec<PageSpan> = pages
            .clone()
            .map(|place| PageSpan {
                page: all[place],
                window: window(place),
                slots: 0..page_size.min(kv.len - place * page_size),
            })
            .collect();
        let hashes = self.ranks.hash_pages(&spans);
        let states = state.map(|slot| self.ranks.hash_states(slot));
        self.observe_with(req, || {
            Ok(point(Payload {
                first_page: pages.start,
                tokens: kv.len,
                pages: hashes?,
                states: states.transpose()?.unwrap_or_default(),
            }))
        });
    }

    /// A step has computed the position of the request's last token and drawn `token`, which comes next. Of a step
    /// that draws several, the state behind the last of them alone is left.
    pub(crate) fn observe_step(&mut self, req: &Req, kv: &ReqKv, token: u32) {
        if self.observing.is_none() || req.moves_nothing() {
            return;
        }
        let position = req.tokens.len() - 1;
        let page_size = self.cache.page_size();
        let slot = position % page_size;
        let req_to_token = self.cache.req_to_token();
        let row = req_to_token.window(kv.idx);
        let span = PageSpan {
            page: req_to_token.pages(kv.idx)[position / page_size],
            window: row.and_then(|row| row.live_page(position / page_size)),
            slots: slot..slot + 1,
        };
        let hashes = self.ranks.hash_pages(&[span]);
        let state = kv.slot().filter(|_| position + 1 == kv.len);
        let states = state.map(|slot| self.ranks.hash_states(slot));
        self.observe_with(req, || {
            let kv: PayloadHash = hashes?[0];
            Ok(Point::Step {
                position,
                kv,
                states: states.transpose()?.unwrap_or_default(),
                token,
            })
        });
    }

    fn observe_with(&self, req: &Req, point: impl FnOnce() -> Result<Point, ComputeError>) {
        let Some(observer) = &self.observing else {
            return;
        };
        match point() {
            Ok(point) => observer.observe(Observation {
                request: req.id.0,
                rid: req.rid.clone(),
                room: req.room().map(|room| room.get()),
                point,
            }),
            Err(error) => {
                tracing::warn!(%error, rid = %req.rid, "observed nothing: the device failed")
            }
        }
    }
}
