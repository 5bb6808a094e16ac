//! The routable workers at one moment, grouped by who can serve together: same models, and equal
//! `kv_compat`. A fleet never changes; the registry makes a new one when a worker does.

use super::info::{Handover, WorkerInfo};
use super::worker::Worker;
use pd_protocol::Role;
use pd_protocol::ports;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What SGLang's own clients send where the user named no model.
const MODEL_DEFAULT: &str = "default";

#[derive(Debug, Default)]
pub(crate) struct Fleet {
    pub(crate) groups: Vec<Group>,
    /// Names of the models of each known worker, ready or not, as it said last.
    known: BTreeSet<Vec<String>>,
    /// Requests that the workers which answer run at once; 0 without any.
    pub(crate) running_max: usize,
    /// Of a request: no worker takes more. `None` if one does not say.
    pub(crate) body_bytes_max: Option<u64>,
}

/// Requests that a worker which does not say is taken to run at once: what SGLang comes to on a GPU
/// of 80 GB with a model of 8 billion parameters is of this order.
const RUNNING_UNSAID: u32 = 256;

/// Workers of the same models whose KV bytes mean the same and are handed over in the same way, and which all have a key of
/// the deployment, or none.
#[derive(Debug, Default)]
pub(crate) struct Group {
    pub(crate) models: Vec<String>,
    pub(crate) handover: Handover,
    /// Tokens of a prompt and its answer that each of them takes, as far as they say.
    pub(crate) context_length: Option<u32>,
    pub(crate) prefill: Vec<Member>,
    pub(crate) decode: Vec<Member>,
    pub(crate) unified: Vec<Member>,
}

#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) worker: Arc<Worker>,
    pub(crate) bootstrap_port: u16,
}

// === impl Fleet ===

impl Fleet {
    /// `known`: the models of every worker, also of those that are not ready.
    pub(crate) fn build<'a>(
        ready: impl IntoIterator<Item = (&'a Arc<Worker>, &'a WorkerInfo)>,
        known: impl IntoIterator<Item = &'a [String]>,
    ) -> Self {
        let mut groups = BTreeMap::new();
        let mut running_max = 0usize;
        let mut bodies_max = Vec::new();
        for (worker, info) in ready {
            if worker.spec.role != Role::Prefill {
                let running = info.max_running_requests.unwrap_or(RUNNING_UNSAID);
                running_max = running_max.saturating_add(running as usize);
            }
            let group = groups
                .entry((
                    info.models.clone(),
                    info.kv_compat.clone(),
                    info.handover,
                    worker.client.is_tls(),
                ))
                .or_insert_with(|| Group {
                    models: info.models.clone(),
                    handover: info.handover,
                    ..Group::default()
                });
            bodies_max.push(info.max_body_bytes);
            let lengths = group.context_length.into_iter().chain(info.context_length);
            group.context_length = lengths.min();
            let given = worker.spec.bootstrap_port.or(info.bootstrap_port);
            group.pool_mut(worker.spec.role).push(Member {
                worker: Arc::clone(worker),
                bootstrap_port: given.unwrap_or(ports::BOOTSTRAP),
            });
        }
        let known = known.into_iter().filter(|models| !models.is_empty());
        Self {
            groups: groups.into_values().collect(),
            known: known.map(<[String]>::to_vec).collect(),
            running_max,
            body_bytes_max: max_if_all_say(bodies_max),
        }
    }

    /// Names of all models that a known worker serves or, now that it is not ready, has served.
    pub(crate) fn known_models(&self) -> BTreeSet<&str> {
        self.known.iter().flatten().map(String::as_str).collect()
    }

    pub(crate) fn knows(&self, model: &str) -> bool {
        self.known.iter().flatten().any(|name| name == model)
    }

    /// Groups that serve the model.
    pub(crate) fn serving(&self, model: Option<&str>) -> Vec<&Group> {
        let groups = self.groups.iter();
        groups.filter(|group| group.serves(model)).collect()
    }

    /// Whether a prefill of the model may be asked whose KV one decode fetches once.
    pub(crate) fn hands_over_once(&self, model: Option<&str>) -> bool {
        let mut groups = self.groups.iter();
        groups.any(|group| group.handover == Handover::TransferParams && group.serves(model))
    }

    /// The model that a client means: with only one, SGLang's `default` is that.
    pub(crate) fn meant<'a>(&'a self, asked: Option<&'a str>) -> Option<&'a str> {
        let is_default = asked == Some(MODEL_DEFAULT) && !self.knows(MODEL_DEFAULT);
        match (is_default, self.known.len()) {
            (true, 1) => self.known.first()?.first().map(String::as_str),
            (true | false, _) => asked,
        }
    }

    /// Names of all models that a client can ask for.
    pub(crate) fn models(&self) -> BTreeSet<&str> {
        self.groups
            .iter()
            .filter(|group| group.is_routable())
            .flat_map(|group| group.models.iter().map(String::as_str))
            .collect()
    }

    /// Tokens of a prompt and its answer that every ready worker of the model takes.
    pub(crate) fn context_length(&self, model: &str) -> Option<u32> {
        let groups = self.groups.iter();
        let serving = groups.filter(|group| group.is_routable() && group.serves(Some(model)));
        serving.filter_map(|group| group.context_length).min()
    }

    pub(crate) fn is_routable(&self) -> bool {
        self.groups.iter().any(Group::is_routable)
    }
}

fn max_if_all_say(each: Vec<Option<u64>>) -> Option<u64> {
    let all: Option<Vec<u64>> = each.into_iter().collect();
    all?.into_iter().max()
}

// === impl Group ===

impl Group {
    /// Whether the group alone can serve a request.
    pub(crate) fn is_routable(&self) -> bool {
        self.has_pair() || !self.unified.is_empty()
    }

    pub(crate) fn has_pair(&self) -> bool {
        !self.prefill.is_empty() && !self.decode.is_empty()
    }

    pub(crate) fn serves(&self, model: Option<&str>) -> bool {
        model.is_none_or(|model| self.models.iter().any(|name| name == model))
    }

    pub(crate) fn pool(&self, role: Role) -> &[Member] {
        match role {
            Role::Prefill => &self.prefill,
            Role::Decode => &self.decode,
            Role::Unified => &self.unified,
        }
    }

    fn pool_mut(&mut self, role: Role) -> &mut Vec<Member> {
        match role {
            Role::Prefill => &mut self.prefill,
            Role::Decode => &mut self.decode,
            Role::Unified => &mut self.unified,
        }
    }
}
