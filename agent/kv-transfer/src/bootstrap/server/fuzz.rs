//! Any requests at the bootstrap server: bodies of registrations as they come, and queries.

use super::*;
use pd_fuzz::{Memory, fuzz};

/// A table of ranks, and the rooms of one query as text.
const MEMORY: Memory = Memory {
    base: 64 << 10,
    per_byte: 128,
};

fn read<T: serde::de::DeserializeOwned>(body: &[u8]) -> Option<T> {
    let read = parse(Ok(Bytes::copy_from_slice(body)));
    if let Err((status, why)) = &read {
        assert_eq!(*status, StatusCode::BAD_REQUEST);
        assert!(why.len() < 512 + body.len(), "{} bytes of error", why.len());
    }
    read.ok()
}

/// Registrations, one in each line. The table answers no more than they said.
#[test]
fn bootstrap_registrations() {
    fuzz!("bootstrap_registrations", MEMORY, |bytes| {
        let mut table = RouteTable::new("boot");
        let mut taken = 0;
        for (nr, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let Some(registration) = read::<RouteRegistration>(line) else {
                continue;
            };
            let boot_id = (nr % 2 == 0).then_some("boot");
            let rank = registration.rank();
            if table.register(registration, boot_id, None).is_ok() {
                taken += 1;
                if let Ok(topology) = table.topology() {
                    assert!(topology.parallel().ranks() <= taken);
                    assert!(table.rank(rank).is_ok());
                }
            }
        }
    });
}

#[test]
fn bootstrap_rooms() {
    fuzz!("bootstrap_rooms", MEMORY, |bytes| {
        let mut table = RouteTable::new("boot");
        if let Some(RegisterDpRank {
            bootstrap_room,
            dp_rank,
        }) = read(bytes)
        {
            table.set_dp_rank(bootstrap_room, dp_rank, Instant::now());
            assert_eq!(table.dp_rank(bootstrap_room), Some(dp_rank));
        }
        if let Some(QueryDpRanks { bootstrap_rooms }) = read(bytes) {
            assert!(bootstrap_rooms.len() <= bytes.len());
        }
    });
}

#[test]
fn bootstrap_query() {
    fuzz!("bootstrap_query", MEMORY, |bytes| {
        let Some(uri) = std::str::from_utf8(bytes)
            .ok()
            .and_then(|query| format!("/route?{query}").parse::<Uri>().ok())
        else {
            return;
        };
        if let Ok(Query(query)) = Query::<RouteQuery>::try_from_uri(&uri)
            && let Ok(RouteTarget::Rank(rank)) = query.target()
        {
            assert_eq!(RouteQuery::rank(rank).target(), query.target());
        }
    });
}
