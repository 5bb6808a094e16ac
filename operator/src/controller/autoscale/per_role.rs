//! A value for prefill and one for decode.

use pd_crds::PoolRole;
use serde::{Deserialize, Serialize};
use std::ops::{Index, IndexMut};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PerRole<T> {
    pub(crate) prefill: T,
    pub(crate) decode: T,
}

pub(crate) const ROLES: [PoolRole; 2] = [PoolRole::Prefill, PoolRole::Decode];

// === impl PerRole ===

impl<T> PerRole<T> {
    pub(crate) fn of(mut value: impl FnMut(PoolRole) -> T) -> Self {
        Self {
            prefill: value(PoolRole::Prefill),
            decode: value(PoolRole::Decode),
        }
    }
}

impl<T> Index<PoolRole> for PerRole<T> {
    type Output = T;

    fn index(&self, role: PoolRole) -> &T {
        match role {
            PoolRole::Prefill => &self.prefill,
            PoolRole::Decode => &self.decode,
        }
    }
}

impl<T> IndexMut<PoolRole> for PerRole<T> {
    fn index_mut(&mut self, role: PoolRole) -> &mut T {
        match role {
            PoolRole::Prefill => &mut self.prefill,
            PoolRole::Decode => &mut self.decode,
        }
    }
}

pub(crate) fn other(role: PoolRole) -> PoolRole {
    match role {
        PoolRole::Prefill => PoolRole::Decode,
        PoolRole::Decode => PoolRole::Prefill,
    }
}
