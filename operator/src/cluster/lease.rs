//! One operator at a time: a Lease that its holder renews, as client-go's leader election has it.
//!
//! Whether a holder has let its Lease run out is judged by the time since this process saw the Lease
//! change, never by comparing clocks. A holder that could not renew in time writes nothing more: its
//! [`WriteFence`] closes before anybody else may take the Lease, also for a process that was frozen
//! meanwhile.

use super::write_fence::WriteFence;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

/// How long a Lease is left to a holder that does not renew it. Source: client-go's defaults for
/// controllers, also the two below.
const LEASE_DURATION: Duration = Duration::from_secs(15);
/// A holder that could not renew for so long gives up; well before others may take over.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
const RETRY_PERIOD: Duration = Duration::from_secs(2);
/// The first PDDeployment and the end of the last are written this soon: `helm uninstall` often follows the deletion.
const COUNT_PERIOD: Duration = Duration::from_millis(100);

/// On the Lease: how many PDDeployments the holder reconciles. The charts' uninstall guard reads it, for
/// admission sees no list.
const DEPLOYMENTS: &str = "pdserve.io/pddeployments";

/// This process as a candidate.
pub(crate) struct Candidate {
    api: Api<Lease>,
    name: String,
    identity: String,
    fence: WriteFence,
    seen: Option<Seen>,
    /// PDDeployments that exist; nothing until they were listed.
    deployments: Option<usize>,
}

/// A Lease, and since when this process has known it like that.
#[derive(Clone, Debug)]
struct Seen {
    lease: Lease,
    since: Instant,
}

/// What a candidate may do about a Lease.
#[derive(Debug, PartialEq, Eq)]
enum LeaseState {
    /// It is this process's own.
    Ours,
    /// It has no holder, or its holder let it run out.
    Free,
    Held,
}

// === impl Candidate ===

impl Candidate {
    pub(crate) fn new(api: Api<Lease>, name: &str, identity: String, fence: WriteFence) -> Self {
        Self {
            api,
            name: name.to_owned(),
            identity,
            fence,
            seen: None,
            deployments: None,
        }
    }

    /// Waits until the Lease is this process's.
    pub(crate) async fn acquire(&mut self) {
        let mut known = None;
        loop {
            match self.attempt().await {
                Ok(true) => {
                    tracing::info!(
                        lease = self.name,
                        identity = self.identity,
                        "acquired leader lease"
                    );
                    return;
                }
                Ok(false) => {
                    let holder = self.seen.as_ref().and_then(|seen| holder(&seen.lease));
                    let holder = holder.map(str::to_owned);
                    if known != holder {
                        tracing::info!(lease = self.name, ?holder, "waiting for leader lease");
                        known = holder;
                    }
                }
                Err(error) => {
                    tracing::warn!(lease = self.name, %error, "cannot acquire leader lease")
                }
            }
            sleep(RETRY_PERIOD).await;
        }
    }

    /// Renews the Lease, with the number of PDDeployments, until that fails for too long or another process
    /// else has it.
    pub(crate) async fn keep(&mut self, deployments: impl Fn() -> Option<usize>) {
        loop {
            let changed = async {
                while !begins_or_ends(self.deployments, deployments()) {
                    sleep(COUNT_PERIOD).await;
                }
            };
            // It is time either way.
            let _elapsed = timeout(RETRY_PERIOD, changed).await;
            self.deployments = deployments().or(self.deployments);
            match timeout(RENEW_DEADLINE, self.attempt()).await {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => {
                    self.fence.close();
                    return;
                }
                Ok(Err(error)) => {
                    tracing::warn!(lease = self.name, %error, "cannot renew leader lease")
                }
                Err(_) => tracing::warn!(lease = self.name, "leader lease renewal timed out"),
            }
            if !self.fence.is_open() {
                return;
            }
        }
    }

    /// Leaves the Lease to the next leader.
    pub(crate) async fn release(mut self) {
        self.fence.close();
        let Some(Seen { mut lease, .. }) = self.seen.take() else {
            return;
        };
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = None;
        spec.lease_duration_seconds = Some(1);
        let params = PostParams::default();
        if let Err(error) = self.api.replace(&self.name, &params, &lease).await {
            tracing::warn!(lease = self.name, %error, "cannot release leader lease");
        }
    }

    /// Tries to take or renew the Lease; gives whether it is this process's now.
    async fn attempt(&mut self) -> kube::Result<bool> {
        let began = Instant::now();
        if self.seen.is_none() || !self.fence.is_open() {
            self.refresh().await?;
        }
        let written = match &self.seen {
            None => {
                let wanted = self.wanted(None);
                self.api.create(&PostParams::default(), &wanted).await
            }
            Some(seen) => match state_of(seen, &self.identity, began) {
                LeaseState::Held => return Ok(false),
                LeaseState::Ours | LeaseState::Free => {
                    let wanted = self.wanted(Some(&seen.lease));
                    let params = PostParams::default();
                    self.api.replace(&self.name, &params, &wanted).await
                }
            },
        };
        match written {
            Ok(lease) => {
                let since = Instant::now();
                self.seen = Some(Seen { lease, since });
                self.fence.open_until(began + RENEW_DEADLINE);
                Ok(true)
            }
            // Another process was faster; the next poll shows which.
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => {
                self.refresh().await?;
                let seen = self.seen.as_ref();
                Ok(
                    seen.is_some_and(|seen| holder(&seen.lease) == Some(&self.identity))
                        && self.fence.is_open(),
                )
            }
            Err(error) => Err(error),
        }
    }

    async fn refresh(&mut self) -> kube::Result<()> {
        let lease = self.api.get_opt(&self.name).await?;
        self.seen = lease.map(|lease| {
            let known = self.seen.as_ref();
            let unchanged = known
                .filter(|seen| seen.lease.resource_version() == lease.resource_version())
                .map(|seen| seen.since);
            Seen {
                lease,
                since: unchanged.unwrap_or_else(Instant::now),
            }
        });
        Ok(())
    }

    /// The Lease as this process would have it.
    fn wanted(&self, before: Option<&Lease>) -> Lease {
        let spec = before.and_then(|lease| lease.spec.clone());
        let spec = spec.unwrap_or_default();
        let now = MicroTime(Timestamp::now());
        let ours = spec.holder_identity.as_deref() == Some(&self.identity);
        let transitions = spec.lease_transitions.unwrap_or(0);
        let metadata = before.map(|lease| lease.metadata.clone());
        let metadata = metadata.unwrap_or_else(|| ObjectMeta {
            name: Some(self.name.clone()),
            ..ObjectMeta::default()
        });
        Lease {
            metadata: counted(metadata, self.deployments),
            spec: Some(LeaseSpec {
                holder_identity: Some(self.identity.clone()),
                lease_duration_seconds: i32::try_from(LEASE_DURATION.as_secs()).ok(),
                lease_transitions: Some(transitions + i32::from(before.is_some() && !ours)),
                acquire_time: spec.acquire_time.filter(|_| ours).or(Some(now.clone())),
                renew_time: Some(now),
                ..spec
            }),
        }
    }
}

/// Whether the first PDDeployment came, or the last went.
fn begins_or_ends(known: Option<usize>, now: Option<usize>) -> bool {
    now.is_some_and(|now| known.is_none_or(|known| (known == 0) != (now == 0)))
}

/// Metadata that says how many PDDeployments exist; what the last holder said, while this one has no
/// list yet.
fn counted(mut metadata: ObjectMeta, deployments: Option<usize>) -> ObjectMeta {
    if let Some(count) = deployments {
        let annotations = metadata.annotations.get_or_insert_default();
        annotations.insert(DEPLOYMENTS.to_owned(), count.to_string());
    }
    metadata
}

fn holder(lease: &Lease) -> Option<&str> {
    let holder = lease.spec.as_ref()?.holder_identity.as_deref();
    holder.filter(|name| !name.is_empty())
}

fn state_of(seen: &Seen, identity: &str, now: Instant) -> LeaseState {
    let spec = seen.lease.spec.as_ref();
    let seconds = spec.and_then(|spec| spec.lease_duration_seconds);
    let duration = seconds
        .and_then(|seconds| u64::try_from(seconds).ok())
        .map_or(LEASE_DURATION, Duration::from_secs);
    match holder(&seen.lease) {
        None => LeaseState::Free,
        Some(holder) if holder == identity => LeaseState::Ours,
        Some(_) if now.duration_since(seen.since) > duration => LeaseState::Free,
        Some(_) => LeaseState::Held,
    }
}

#[cfg(test)]
mod tests {
    //! Facts about who may lead.

    use super::*;

    fn mk_seen(holder: Option<&str>, seconds: i32, ago: Duration) -> (Seen, Instant) {
        let now = Instant::now() + Duration::from_secs(1000);
        let spec = LeaseSpec {
            holder_identity: holder.map(str::to_owned),
            lease_duration_seconds: Some(seconds),
            ..LeaseSpec::default()
        };
        let lease = Lease {
            spec: Some(spec),
            ..Lease::default()
        };
        let since = now - ago;
        (Seen { lease, since }, now)
    }

    #[test]
    fn a_lease_is_left_to_its_holder_for_its_own_duration() {
        let state_after = |holder, secs| {
            let (seen, now) = mk_seen(holder, 15, Duration::from_secs(secs));
            state_of(&seen, "me", now)
        };
        assert_eq!(state_after(Some("other"), 15), LeaseState::Held);
        assert_eq!(state_after(Some("other"), 16), LeaseState::Free);
        assert_eq!(state_after(Some("me"), 99), LeaseState::Ours);
        assert_eq!(state_after(None, 0), LeaseState::Free);
        assert_eq!(state_after(Some(""), 0), LeaseState::Free);
    }

    /// What the uninstall guard reads outlives the holder, and is not 0 before there was a list.
    #[test]
    fn the_lease_says_how_many_deployments_exist_once_they_were_listed() {
        let count =
            |metadata: &ObjectMeta| metadata.annotations.as_ref()?.get(DEPLOYMENTS).cloned();
        let fresh = counted(ObjectMeta::default(), None);
        assert_eq!(count(&fresh), None);
        let listed = counted(fresh, Some(3));
        assert_eq!(count(&listed).as_deref(), Some("3"));
        let next_holder = counted(listed, None);
        assert_eq!(count(&next_holder).as_deref(), Some("3"));
    }

    #[test]
    fn the_first_deployment_and_the_end_of_the_last_are_written_at_once() {
        assert!(begins_or_ends(None, Some(0)), "the first list");
        assert!(begins_or_ends(Some(0), Some(1)));
        assert!(begins_or_ends(Some(1), Some(0)));
        assert!(!begins_or_ends(Some(1), Some(2)));
        assert!(!begins_or_ends(Some(1), None));
    }

    /// The fence closes before another may take the Lease, with time for a write to arrive.
    #[test]
    fn the_holder_gives_up_before_others_take_over() {
        assert!(RENEW_DEADLINE + 2 * RETRY_PERIOD < LEASE_DURATION);
    }
}
