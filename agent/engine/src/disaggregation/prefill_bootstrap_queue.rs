//! `PrefillBootstrapQueue`: requests whose decode side has not yet sent its destination pages.
//!
//! Life of a request here:
//! 1. `push`: a `KvSender` opens its room (`Bootstrapping`).
//! 2. Decode reserves pages and sends its `TransferInfo` from every rank (`WaitingForInput`).
//! 3. `pop_bootstrapped`: a metadata row is reserved, the sender gets the number of pages, and the
//!    request may wait for its prompt to be computed.
//! 4. Or it fails here, by timeout or because decode gave up, and never costs a page.

use super::TransferEnd;
use super::fence::Fence;
use crate::engine::RequestId;
use crate::req::{Req, Transfer};
use crate::resources::Resources;
use crate::timeline::stage_now;
use pd_compute::Backend;
use pd_kv_transfer::SenderRequest;
use pd_protocol::KvPoll;
use pd_protocol::ports::FAKE_BOOTSTRAP_HOST;
use pd_protocol::timeline::Stage;
use std::collections::VecDeque;

/// SGLang's `PrefillBootstrapQueue`.
#[derive(Debug, Default)]
pub(crate) struct PrefillBootstrapQueue {
    reqs: VecDeque<Req>,
}

// === impl PrefillBootstrapQueue ===

impl PrefillBootstrapQueue {
    pub(crate) fn len(&self) -> usize {
        self.reqs.len()
    }

    pub(crate) fn push<B: Backend>(
        &mut self,
        resources: &Resources<B>,
        end: &TransferEnd,
        mut req: Req,
    ) {
        let bootstrap = req
            .bootstrap
            .as_ref()
            .expect("submission checks the bootstrap fields");
        let fake = bootstrap.bootstrap_host == FAKE_BOOTSTRAP_HOST;
        match end.manager.sender(SenderRequest {
            room: bootstrap.bootstrap_room,
            fake,
        }) {
            Ok(sender) => {
                req.transfer = Transfer::Sender(sender, 0);
                resources.record(&req, stage_now(Stage::PrefillQueued));
                self.reqs.push_back(req);
            }
            Err(error) => {
                resources.metrics.counters.bootstrap_failed_reqs.inc();
                resources.fail(&req, &error.to_string(), false);
            }
        }
    }

    /// Removes the requests that may be computed now, and failed ones, which go behind the fence.
    pub(crate) fn pop_bootstrapped<B: Backend>(
        &mut self,
        resources: &mut Resources<B>,
        end: &mut TransferEnd,
        fence: &mut Fence,
    ) -> Vec<Req> {
        let page_size = resources.cache.page_size();
        let mut bootstrapped = Vec::new();
        for mut req in std::mem::take(&mut self.reqs) {
            let Transfer::Sender(sender, _) = &req.transfer else {
                unreachable!("queued with a sender");
            };
            match sender.poll() {
                KvPoll::Failed => {
                    resources.metrics.counters.bootstrap_failed_reqs.inc();
                    resources.fail(&req, &req.transfer.failure(), true);
                    fence.take(&mut req, &mut resources.cache);
                }
                KvPoll::Bootstrapping => self.reqs.push_back(req),
                KvPoll::WaitingForInput | KvPoll::Transferring | KvPoll::Success => {
                    let Some(index) = end.metadata_rows.alloc() else {
                        self.reqs.push_back(req);
                        continue;
                    };
                    sender.init(req.prompt_len.div_ceil(page_size), index);
                    req.metadata_buffer_index = Some(index);
                    let waited = req.times.received.elapsed().as_secs_f64();
                    resources.metrics.histograms.bootstrap_time.observe(waited);
                    resources.record(&req, stage_now(Stage::PrefillBootstrapped));
                    bootstrapped.push(req);
                }
            }
        }
        bootstrapped
    }

    pub(crate) fn take(&mut self, id: RequestId) -> Option<Req> {
        let place = self.reqs.iter().position(|req| req.id == id)?;
        self.reqs.remove(place)
    }

    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Req> {
        std::mem::take(&mut self.reqs).into_iter()
    }
}
