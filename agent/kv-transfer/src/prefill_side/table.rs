//! Rooms that prefill knows: open ones, ones that decode has announced before the request came, and
//! ones that are over. Both legs of a request race here, so every order must end well.

use super::decode_peer::DecodePeer;
use super::room::SenderRoom;
use crate::clock::Instant;
use pd_protocol::BootstrapRoom;
use pd_protocol::control::{SessionId, TransferInfo};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Rooms announced by decode whose request has not come; and rooms remembered after their end.
const EARLY_MAX: usize = 16_384;
const ENDED_MAX: usize = 65_536;
/// Page numbers of all rooms that are announced early: 64 MiB of them.
const EARLY_PAGES_MAX: usize = 16 << 20;
/// Rooms that decode gave up before their request came; a flood of them forgets no room that was used.
const ABORTED_MAX: usize = 16_384;

#[derive(Default)]
pub(crate) struct Rooms {
    pub(crate) open: HashMap<BootstrapRoom, Arc<SenderRoom>>,
    early: HashMap<BootstrapRoom, Early>,
    early_pages: usize,
    ended: HashMap<BootstrapRoom, Ended>,
    used_order: VecDeque<BootstrapRoom>,
    aborted_order: VecDeque<BootstrapRoom>,
}

struct Early {
    infos: Vec<(Arc<DecodePeer>, TransferInfo)>,
    at: Instant,
}

/// Why a room is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Its request came and went: the room is never opened again.
    Used,
    /// Decode gave it up before its request came: the request fails with this reason.
    Aborted(String),
}

impl Rooms {
    pub(crate) fn ended(&self, room: BootstrapRoom) -> Option<&Ended> {
        self.ended.get(&room)
    }

    pub(crate) fn end(&mut self, room: BootstrapRoom, how: Ended) {
        self.take_early(room);
        let is_used = how == Ended::Used;
        let (order, max) = if is_used {
            (&mut self.used_order, ENDED_MAX)
        } else {
            (&mut self.aborted_order, ABORTED_MAX)
        };
        let before = self.ended.insert(room, how);
        if before.is_none_or(|before| (before == Ended::Used) != is_used) {
            order.push_back(room);
        }
        if order.len() > max
            && let Some(oldest) = order.pop_front()
            && let Some(known) = self.ended.get(&oldest)
            && (*known == Ended::Used) == is_used
        {
            self.ended.remove(&oldest);
        }
    }

    /// Keeps an announcement for its request; false when too many are kept.
    pub(crate) fn keep(
        &mut self,
        peer: &Arc<DecodePeer>,
        info: TransferInfo,
        now: Instant,
        ttl: Duration,
    ) -> bool {
        let pages = info.page_indices.len();
        let is_full = |rooms: &Self| {
            let is_one_more = !rooms.early.contains_key(&info.room);
            rooms.early_pages + pages > EARLY_PAGES_MAX
                || rooms.early.len() >= EARLY_MAX && is_one_more
        };
        if is_full(self) {
            self.early
                .retain(|_, early| now.duration_since(early.at) < ttl);
            self.count_early();
        }
        if is_full(self) {
            return false;
        }
        let fresh = || Early {
            infos: Vec::new(),
            at: now,
        };
        let early = self.early.entry(info.room).or_insert_with(fresh);
        let known = early.infos.iter_mut();
        match known.into_iter().find(|(p, _)| p.id() == peer.id()) {
            Some((_, known)) => *known = info,
            None => early.infos.push((Arc::clone(peer), info)),
        }
        // Too much where one was announced again, until all are counted.
        self.early_pages += pages;
        true
    }

    /// Whether a session may give a room up whose request has not come: once others announced it, only they.
    pub(crate) fn may_be_aborted_by(&self, room: BootstrapRoom, session_id: &SessionId) -> bool {
        let early = self.early.get(&room);
        early.is_none_or(|early| early.infos.iter().any(|(peer, _)| peer.id() == session_id))
    }

    pub(crate) fn take_early(
        &mut self,
        room: BootstrapRoom,
    ) -> Vec<(Arc<DecodePeer>, TransferInfo)> {
        let early = self.early.remove(&room);
        let infos = early.map_or_else(Vec::new, |early| early.infos);
        let pages: usize = infos.iter().map(|(_, info)| info.page_indices.len()).sum();
        self.early_pages = self.early_pages.saturating_sub(pages);
        infos
    }

    fn count_early(&mut self) {
        let infos = self.early.values().flat_map(|early| &early.infos);
        self.early_pages = infos.map(|(_, info)| info.page_indices.len()).sum();
    }

    /// Forgets what a decode peer has announced.
    pub(crate) fn forget_peer(&mut self, session_id: &SessionId) {
        self.early.retain(|_, early| {
            early.infos.retain(|(peer, _)| peer.id() != session_id);
            !early.infos.is_empty()
        });
        self.count_early();
    }
}
