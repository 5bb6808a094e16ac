//! Any bytes as the JSON of bootstrap servers and of the admin API: what is read, writes and reads as the same.

use crate::bootstrap::{
    DpRanks, PrefillServerInfo, QueryDpRanks, RankAddr, RegisterDpRank, RouteQuery,
    RouteRegistration, RouteTarget,
};
use crate::timeline::RequestTimeline;
use crate::workers::{BootstrapFields, DrainStatus, WorkerList, WorkerSpec, WorkerStatus};
use pd_fuzz::{Memory, fuzz};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// Room 0 to 63 bits: a list of rooms takes four bytes for each of its own.
const MEMORY: Memory = Memory {
    base: 16 << 10,
    per_byte: 128,
};

fn reads_back<T: DeserializeOwned + Serialize + PartialEq + Debug>(bytes: &[u8]) -> Option<T> {
    let read: T = serde_json::from_slice(bytes).ok()?;
    let written = serde_json::to_vec(&read).expect("what was read can be written");
    let again: T = serde_json::from_slice(&written).expect("what was written can be read");
    assert_eq!(again, read);
    Some(read)
}

#[test]
fn bootstrap_json() {
    fuzz!("bootstrap_json", MEMORY, |bytes| {
        if let Some(registration) = reads_back::<RouteRegistration>(bytes) {
            let _ = (registration.parallel().ranks(), registration.rank());
        }
        if let Some(info) = reads_back::<PrefillServerInfo>(bytes) {
            let _ = info.parallel().ranks();
        }
        if let Some(query) = reads_back::<RouteQuery>(bytes)
            && let Ok(RouteTarget::Rank(rank)) = query.target()
        {
            assert_eq!(RouteQuery::rank(rank).target(), query.target());
        }
        reads_back::<RankAddr>(bytes);
        reads_back::<RegisterDpRank>(bytes);
        reads_back::<QueryDpRanks>(bytes);
        reads_back::<DpRanks>(bytes);
    });
}

#[test]
fn admin_json() {
    fuzz!("admin_json", MEMORY, |bytes| {
        reads_back::<WorkerSpec>(bytes);
        reads_back::<WorkerStatus>(bytes);
        reads_back::<WorkerList>(bytes);
        reads_back::<DrainStatus>(bytes);
        reads_back::<RequestTimeline>(bytes);
        if let Some(fields) = reads_back::<BootstrapFields>(bytes) {
            assert!(fields.bootstrap_room.get() > 0);
        }
    });
}
