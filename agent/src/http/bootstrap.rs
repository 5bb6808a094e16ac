//! Bootstrap fields of a request body: the prefill worker and the room of each part. The router
//! writes them; a part is one choice of one item, item-major.

use super::error::ApiError;
use super::one_or_many::OneOrMany;
use pd_protocol::Role;
use pd_protocol::workers::BootstrapFields;
use pd_protocol::{BootstrapRoom, ports};
use serde::Deserialize;

/// Longest host, a name of DNS: each part has it.
const HOST_BYTES_MAX: usize = 253;

/// `bootstrap_host`, `bootstrap_port` and `bootstrap_room` as sent: one value, or one per part.
#[derive(Debug, Default)]
pub(crate) struct BootstrapBody {
    pub(crate) host: Option<OneOrMany<String>>,
    pub(crate) port: Option<OneOrMany<BootstrapPort>>,
    pub(crate) room: Option<OneOrMany<BootstrapRoom>>,
}

/// A `bootstrap_port`; null means the well-known one.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "a bootstrap port is a number in 0..=65535, or null"
)]
pub(crate) enum BootstrapPort {
    Given(u16),
    WellKnown,
}

// === impl BootstrapPort ===

impl BootstrapPort {
    const fn get(self) -> u16 {
        match self {
            Self::Given(port) => port,
            Self::WellKnown => ports::BOOTSTRAP,
        }
    }
}

// === impl BootstrapBody ===

impl BootstrapBody {
    /// The fields of each of `parts` parts; `None` each on a unified worker, which does not need
    /// them. One host or port applies to all parts; a single room belongs to the first part, and
    /// part `i` gets the `i`-th room after it.
    ///
    /// # Errors
    /// 400 when a required field is absent, or a list's length is not `parts`.
    pub(crate) fn resolve(
        self,
        role: Role,
        parts: usize,
    ) -> Result<Vec<Option<BootstrapFields>>, ApiError> {
        if role == Role::Unified {
            return Ok(vec![None; parts]);
        }
        let host = self.host.ok_or_else(|| missing("bootstrap_host", role))?;
        if let OneOrMany::One(host) = &host
            && host.len() > HOST_BYTES_MAX
        {
            let message = format!(
                "`bootstrap_host` has {} bytes; a host has at most {HOST_BYTES_MAX}",
                host.len()
            );
            return Err(ApiError::field("bootstrap_host", message));
        }
        let room = self.room.ok_or_else(|| missing("bootstrap_room", role))?;
        let port = self
            .port
            .unwrap_or(OneOrMany::One(BootstrapPort::WellKnown));
        let hosts = spread("bootstrap_host", host, parts)?;
        let ports = spread("bootstrap_port", port, parts)?;
        let rooms = rooms(room, parts)?;
        let fields = hosts.into_iter().zip(ports).zip(rooms);
        Ok(fields
            .map(|((bootstrap_host, port), bootstrap_room)| {
                Some(BootstrapFields {
                    bootstrap_host,
                    bootstrap_port: port.get(),
                    bootstrap_room,
                })
            })
            .collect())
    }
}

fn missing(field: &'static str, role: Role) -> ApiError {
    let role = role.as_str();
    let message = format!(
        "`{field}` is missing: this worker computes {role} only; send requests to the \
         router, which adds it"
    );
    ApiError::field(field, message).with_code("missing_bootstrap")
}

fn spread<T: Clone>(
    field: &'static str,
    value: OneOrMany<T>,
    parts: usize,
) -> Result<Vec<T>, ApiError> {
    match value {
        OneOrMany::One(one) => Ok(vec![one; parts]),
        OneOrMany::Many(many) if many.len() == parts => Ok(many),
        OneOrMany::Many(many) => Err(wrong_length(field, many.len(), parts)),
    }
}

fn rooms(room: OneOrMany<BootstrapRoom>, parts: usize) -> Result<Vec<BootstrapRoom>, ApiError> {
    let OneOrMany::One(first) = room else {
        return spread("bootstrap_room", room, parts);
    };
    let rooms: Option<Vec<_>> = (0..parts)
        .map(|part| first.item(u32::try_from(part).ok()?))
        .collect();
    rooms.ok_or_else(|| {
        let message = format!("`bootstrap_room` {first} is too large for {parts} parts");
        ApiError::field("bootstrap_room", message)
    })
}

fn wrong_length(field: &'static str, found: usize, parts: usize) -> ApiError {
    let message = format!(
        "`{field}` has {found} elements, but the request has {parts} parts (items times n)"
    );
    ApiError::field(field, message)
}

#[cfg(test)]
mod tests;
