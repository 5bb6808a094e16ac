//! The routable workers at one moment, grouped by who can serve together: same models, and equal
//! `kv_compat`. A fleet never changes; the registry makes a new one when a worker does.

use super::{Worker, WorkerInfo};
use pd_protocol::ports;
use pd_protocol::workers::Role;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Debug, Default)]
pub struct Fleet {
    pub groups: Vec<Group>,
}

/// Workers of the same models whose KV bytes mean the same.
#[derive(Debug, Default)]
pub struct Group {
    pub models: Vec<String>,
    pub prefill: Vec<Member>,
    pub decode: Vec<Member>,
    pub null: Vec<Member>,
}

#[derive(Clone, Debug)]
pub struct Member {
    pub worker: Arc<Worker>,
    pub bootstrap_port: u16,
}

// === impl Fleet ===

impl Fleet {
    pub fn build<'a>(ready: impl IntoIterator<Item = (&'a Arc<Worker>, &'a WorkerInfo)>) -> Self {
        let mut groups: BTreeMap<(Vec<String>, Option<String>), Group> = BTreeMap::new();
        for (worker, info) in ready {
            let group = groups
                .entry((info.models.clone(), info.kv_compat.clone()))
                .or_insert_with(|| Group {
                    models: info.models.clone(),
                    ..Group::default()
                });
            let given = worker.spec.bootstrap_port.or(info.bootstrap_port);
            group.pool_mut(worker.spec.role).push(Member {
                worker: Arc::clone(worker),
                bootstrap_port: given.unwrap_or(ports::BOOTSTRAP),
            });
        }
        Self {
            groups: groups.into_values().collect(),
        }
    }

    /// Names of all models that a client can ask for.
    pub fn models(&self) -> BTreeSet<&str> {
        self.groups
            .iter()
            .filter(|group| group.is_routable())
            .flat_map(|group| group.models.iter().map(String::as_str))
            .collect()
    }

    pub fn is_routable(&self) -> bool {
        self.groups.iter().any(Group::is_routable)
    }
}

// === impl Group ===

impl Group {
    /// Whether the group alone can serve a request.
    pub fn is_routable(&self) -> bool {
        self.has_pair() || !self.null.is_empty()
    }

    pub fn has_pair(&self) -> bool {
        !self.prefill.is_empty() && !self.decode.is_empty()
    }

    pub fn serves(&self, model: Option<&str>) -> bool {
        model.is_none_or(|model| self.models.iter().any(|name| name == model))
    }

    pub fn pool(&self, role: Role) -> &[Member] {
        match role {
            Role::Prefill => &self.prefill,
            Role::Decode => &self.decode,
            Role::Null => &self.null,
        }
    }

    fn pool_mut(&mut self, role: Role) -> &mut Vec<Member> {
        match role {
            Role::Prefill => &mut self.prefill,
            Role::Decode => &mut self.decode,
            Role::Null => &mut self.null,
        }
    }
}
