//! `DecodePreallocQueue`: requests without pages for the KV that they will receive.
//!
//! Life of a request here:
//! 1. `push`: a `KvReceiver` opens its room and looks for prefill (`Bootstrapping`).
//! 2. Prefill is known (`WaitingForInput`): `pop_preallocated` reserves a request row, pages for the part of
//!    the prompt that is not cached and a metadata row, if both checks of [`Headroom`] pass, and sends prefill the
//!    destination. First come, first served: a request that does not fit blocks those behind it.
//! 3. Another request's room brings most of what it lacks, and little else: it waits for that room's end, some seconds at
//!    most, holds nothing meanwhile, and is passed over. So the KV of a prompt with many choices comes once.
//! 4. Or prefill is not found, or gives up: the request fails here and never cost a page.

use super::TransferEnd;
use super::decode_transfer_queue::{Arriving, DecodeTransferQueue};
use super::fence::Fence;
use super::headroom::Headroom;
use super::transfer::failure;
use crate::command::RequestId;
use crate::kvcache::pool::{KvCache, ReqKv};
use crate::recorder::Recorder;
use crate::req::Req;
use crate::resources::Resources;
use crate::schedule::computing::{brings_most, shared_len};
use pd_kv_transfer::{BootstrapAddr, KvReceiver, ReceiverRequest};
use pd_protocol::KvPoll;
use pd_protocol::timeline::Stage;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// SGLang's `DecodePreallocQueue`.
#[derive(Debug, Default)]
pub(crate) struct DecodePreallocQueue {
    reqs: VecDeque<Waiting>,
}

/// A request without memory.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) req: Req,
    pub(crate) receiver: KvReceiver,
    /// The request whose room brought most of what this one lacked when that was last looked at.
    awaits: Option<RequestId>,
    /// When it began to wait for others.
    waits_since: Option<Instant>,
}

/// A request waits no longer for others: a room that hangs would take along all that share its prompt.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Whether a request gets memory.
enum Start {
    /// It has a row with its cached prefix, and pages for the rest of its prompt.
    Begins(ReqKv),
    /// Another one brings most of its prompt.
    Awaits(RequestId),
    NoRoom,
}

// === impl DecodePreallocQueue ===

impl DecodePreallocQueue {
    pub(crate) fn len(&self) -> usize {
        self.reqs.len()
    }

    /// Slots that the waiting requests will need for their prompts.
    pub(crate) fn waiting_tokens(&self) -> usize {
        self.reqs.iter().map(|waiting| waiting.req.prompt_len).sum()
    }

    /// When the first one began to wait.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        let first = self.reqs.front()?;
        Some(first.req.times.received)
    }

    pub(crate) fn push(&mut self, recorder: &Recorder, end: &TransferEnd, req: Req) {
        let bootstrap = req.bootstrap.as_ref();
        let bootstrap = bootstrap.expect("submission checks the bootstrap fields");
        let opened = end.manager.receiver(ReceiverRequest {
            bootstrap_addr: BootstrapAddr {
                host: bootstrap.bootstrap_host.clone(),
                port: bootstrap.bootstrap_port,
            },
            room: bootstrap.bootstrap_room,
            prefill_dp_rank: None,
        });
        match opened {
            Ok(receiver) => {
                recorder.stage(&req, Stage::DecodeQueued);
                self.reqs.push_back(Waiting {
                    req,
                    receiver,
                    awaits: None,
                    waits_since: None,
                });
            }
            Err(error) => recorder.fail_bootstrap(&req, &error.to_string(), false),
        }
    }

    /// Ends the requests whose bootstrap failed.
    pub(crate) fn drop_failed(&mut self, recorder: &Recorder, fence: &mut Fence) {
        for waiting in std::mem::take(&mut self.reqs) {
            if waiting.receiver.poll() == KvPoll::Failed {
                let reason = failure(waiting.receiver.failure_reason());
                recorder.fail_bootstrap(&waiting.req, &reason, true);
                fence.take_transfer(waiting.receiver.into());
            } else {
                self.reqs.push_back(waiting);
            }
        }
    }

    /// Removes the requests that have got pages; their KV may arrive, as that of `transfer` may already.
    pub(crate) fn pop_preallocated(
        &mut self,
        resources: &mut Resources,
        end: &mut TransferEnd,
        transfer: &DecodeTransferQueue,
        mut headroom: Headroom,
    ) -> Vec<Arriving> {
        let mut preallocated: Vec<Arriving> = Vec::new();
        let mut place = 0;
        while let Some(waiting) = self.reqs.get_mut(place) {
            let preallocated_reqs = preallocated.iter().map(|arriving| &arriving.req);
            let arriving = transfer.iter().chain(preallocated_reqs);
            if !waiting.knows_prefill() || waiting.still_awaits(arriving.clone()) {
                place += 1;
                continue;
            }
            if end.metadata_rows.available() == 0 {
                break;
            }
            match waiting.start(&mut resources.cache, &mut headroom, arriving) {
                Start::Begins(kv) => {
                    let waiting = self.reqs.remove(place).expect("it was seen above");
                    preallocated.push(waiting.offer(resources, end, kv));
                }
                Start::Awaits(other) => {
                    waiting.awaits = Some(other);
                    waiting.waits_since.get_or_insert_with(Instant::now);
                    place += 1;
                }
                Start::NoRoom => break,
            }
        }
        preallocated
    }

    pub(crate) fn take(&mut self, id: RequestId) -> Option<Waiting> {
        let place = self.reqs.iter().position(|waiting| waiting.req.id == id)?;
        self.reqs.remove(place)
    }

    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Waiting> {
        std::mem::take(&mut self.reqs).into_iter()
    }
}

// === impl Waiting ===

impl Waiting {
    fn knows_prefill(&self) -> bool {
        matches!(self.receiver.poll(), KvPoll::WaitingForInput)
    }

    /// Whether the request that it waits for is still among those whose KV arrives.
    fn still_awaits<'a>(&self, mut arriving: impl Iterator<Item = &'a Req>) -> bool {
        let awaited = self.awaits.filter(|_| self.may_wait());
        awaited.is_some_and(|id| arriving.any(|other| other.id == id))
    }

    fn may_wait(&self) -> bool {
        let since = self.waits_since;
        since.is_none_or(|since| since.elapsed() < WAIT_MAX)
    }

    fn start<'a>(
        &self,
        cache: &mut KvCache,
        headroom: &mut Headroom,
        arriving: impl Iterator<Item = &'a Req>,
    ) -> Start {
        let Self { req, receiver, .. } = self;
        let shares = cache.keeps_prefixes() && receiver.honours_prefix() && !req.moves_nothing();
        // With the last token come the metadata row and the first token of the answer.
        let prefix_len = if shares { req.prompt_len - 1 } else { 0 };
        let prefix = &req.tokens[..prefix_len];
        let available = cache.available_tokens().full;
        let Some(kv) = cache.begin_received(prefix, req.prompt_len) else {
            return Start::NoRoom;
        };
        let (cached, page_size) = (kv.cached_len(), cache.page_size());
        // Rooms of another prefill may fail, or hang, by themselves; what is cached with the end of a much longer prompt comes
        // late.
        let is_soon = |other: &Req| shared_len(&other.tokens, prefix) * 2 >= other.prompt_len;
        let awaited = arriving.filter(|_| self.may_wait()).find(|other| {
            req.has_prefill_of(other)
                && brings_most(&other.tokens, prefix, cached, page_size)
                && is_soon(other)
        });
        if let Some(other) = awaited {
            cache.discard(kv);
            return Start::Awaits(other.id);
        }
        let newly_locked = available - cache.available_tokens().full;
        let shared = cached - newly_locked;
        let len = req.prompt_len;
        if headroom.try_take(len, shared, req.remaining_len()) && cache.try_extend(&kv, len) {
            Start::Begins(kv)
        } else {
            cache.discard(kv);
            Start::NoRoom
        }
    }

    /// Offers prefill the memory for what is not cached.
    fn offer(self, resources: &mut Resources, end: &mut TransferEnd, kv: ReqKv) -> Arriving {
        let Self { req, receiver, .. } = self;
        let row = end.metadata_rows.alloc();
        let row = row.expect("the caller saw that one is free");
        let cleared = end.metadata.clear_row(row);
        cleared.expect("every index of the allocator has a row");
        let cache = &resources.cache;
        let prefix_len = kv.cached_len();
        let pages = &cache.page_ids(&kv)[prefix_len / cache.page_size()..];
        let prefix_len = u32::try_from(prefix_len).expect("prompts have fewer than 2^32 tokens");
        receiver.init_behind(prefix_len, pages, row, &end.state_indices(cache, &kv));
        let recorder = &resources.recorder;
        recorder.bootstrapped(&req, Stage::DecodePreallocated);
        Arriving {
            req,
            receiver,
            kv,
            row,
            since: Instant::now(),
        }
    }
}
