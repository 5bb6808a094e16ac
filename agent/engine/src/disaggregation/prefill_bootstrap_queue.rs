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
use super::outgoing::Outgoing;
use super::transfer::failure;
use crate::command::RequestId;
use crate::recorder::Recorder;
use crate::req::Req;
use crate::resources::Resources;
use pd_kv_transfer::{KvSender, SenderRequest};
use pd_protocol::KvPoll;
use pd_protocol::timeline::Stage;
use std::collections::VecDeque;

/// SGLang's `PrefillBootstrapQueue`.
#[derive(Debug, Default)]
pub(crate) struct PrefillBootstrapQueue {
    reqs: VecDeque<(Req, KvSender)>,
}

// === impl PrefillBootstrapQueue ===

impl PrefillBootstrapQueue {
    pub(crate) fn len(&self) -> usize {
        self.reqs.len()
    }

    pub(crate) fn push(&mut self, recorder: &Recorder, end: &TransferEnd, req: Req) {
        let bootstrap = req.bootstrap.as_ref();
        let bootstrap = bootstrap.expect("submission checks the bootstrap fields");
        let opened = end.manager.sender(SenderRequest {
            room: bootstrap.bootstrap_room,
            fake: req.moves_nothing(),
        });
        match opened {
            Ok(sender) => {
                recorder.stage(&req, Stage::PrefillQueued);
                self.reqs.push_back((req, sender));
            }
            Err(error) => recorder.fail_bootstrap(&req, &error.to_string(), false),
        }
    }

    /// Removes the requests that may be computed now, and failed ones, which go behind the fence.
    pub(crate) fn pop_bootstrapped(
        &mut self,
        resources: &mut Resources,
        end: &mut TransferEnd,
        fence: &mut Fence,
    ) -> Vec<(Req, Outgoing)> {
        let page_size = resources.cache.page_size();
        let recorder = &resources.recorder;
        let mut bootstrapped = Vec::new();
        for (req, sender) in std::mem::take(&mut self.reqs) {
            match sender.poll() {
                KvPoll::Failed => {
                    let reason = failure(sender.failure_reason());
                    recorder.fail_bootstrap(&req, &reason, true);
                    fence.take_transfer(sender.into());
                }
                KvPoll::Bootstrapping => self.reqs.push_back((req, sender)),
                KvPoll::WaitingForInput | KvPoll::Transferring | KvPoll::Success => {
                    let Some(row) = end.metadata_rows.alloc() else {
                        self.reqs.push_back((req, sender));
                        continue;
                    };
                    sender.init(req.prompt_len.div_ceil(page_size), row);
                    recorder.bootstrapped(&req, Stage::PrefillBootstrapped);
                    bootstrapped.push((req, Outgoing::new(sender, row)));
                }
            }
        }
        bootstrapped
    }

    pub(crate) fn take(&mut self, id: RequestId) -> Option<(Req, KvSender)> {
        let place = self.reqs.iter().position(|(req, _)| req.id == id)?;
        self.reqs.remove(place)
    }

    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = (Req, KvSender)> {
        std::mem::take(&mut self.reqs).into_iter()
    }
}
