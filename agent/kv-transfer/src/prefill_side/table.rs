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

#[derive(Default)]
pub(crate) struct Rooms {
    pub(crate) open: HashMap<BootstrapRoom, Arc<SenderRoom>>,
    early: HashMap<BootstrapRoom, Early>,
    ended: HashMap<BootstrapRoom, Ended>,
    ended_order: VecDeque<BootstrapRoom>,
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
        self.early.remove(&room);
        if self.ended.insert(room, how).is_some() {
            return;
        }
        self.ended_order.push_back(room);
        if self.ended_order.len() > ENDED_MAX
            && let Some(oldest) = self.ended_order.pop_front()
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
        if self.early.len() >= EARLY_MAX {
            self.early
                .retain(|_, early| now.duration_since(early.at) < ttl);
        }
        if self.early.len() >= EARLY_MAX && !self.early.contains_key(&info.room) {
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
        early.map_or_else(Vec::new, |early| early.infos)
    }

    /// Forgets what a decode peer has announced.
    pub(crate) fn forget_peer(&mut self, session_id: &SessionId) {
        self.early.retain(|_, early| {
            early.infos.retain(|(peer, _)| peer.id() != session_id);
            !early.infos.is_empty()
        });
    }
}
