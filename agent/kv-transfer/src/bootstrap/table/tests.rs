//! Facts about the routing table.

use super::*;

pub(crate) fn mk_registration(tp_size: u32, tp_rank: u32, rank_port: u16) -> RouteRegistration {
    RouteRegistration {
        attn_tp_size: tp_size,
        attn_tp_rank: tp_rank,
        attn_cp_size: 1,
        attn_cp_rank: 0,
        attn_dp_size: 1,
        attn_dp_rank: 0,
        pp_size: 1,
        pp_rank: 0,
        system_dp_size: 1,
        system_dp_rank: 0,
        rank_ip: "127.0.0.1".to_owned(),
        rank_port,
        page_size: 16,
        kv_cache_dtype: "float32".to_owned(),
        kv_layout: None,
        load_balance_method: None,
        prefill_http_port: None,
        decode_allocation_policy: None,
    }
}

fn mk_table() -> RouteTable {
    RouteTable::new("boot-1")
}

fn mk_rank(tp_rank: u32) -> RankId {
    RankId {
        tp_rank,
        ..RankId::default()
    }
}

#[test]
fn a_rank_that_registers_twice_counts_once() {
    let mut table = mk_table();
    table
        .register(mk_registration(2, 0, 1), None, None)
        .unwrap();
    table
        .register(mk_registration(2, 0, 2), None, None)
        .unwrap();
    assert_eq!(table.topology(), Err(LookupError::NotReady(1)));
    table
        .register(mk_registration(2, 1, 3), None, None)
        .unwrap();
    assert_eq!(table.topology().unwrap().attn_tp_size, 2);
    assert_eq!(table.rank(mk_rank(0)).unwrap().rank_port, 2);
}

#[test]
fn a_conflicting_layout_is_refused_with_both_values() {
    let mut table = mk_table();
    table
        .register(mk_registration(2, 0, 1), None, None)
        .unwrap();
    let mut other = mk_registration(2, 1, 2);
    other.page_size = 64;
    let error = table.register(other, None, None).unwrap_err().to_string();
    assert!(error.contains("page_size was 16, now 64"), "{error}");
}

#[test]
fn a_rank_of_another_boot_is_refused_and_changes_nothing() {
    let mut table = mk_table();
    let own = Some("boot-1");
    table.register(mk_registration(1, 0, 1), own, None).unwrap();
    let error = table.register(mk_registration(1, 0, 2), Some("boot-2"), None);
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("boot boot-1") && error.contains("boot boot-2"),
        "{error}"
    );
    assert_eq!(table.rank(mk_rank(0)).unwrap().rank_port, 1);
}

#[test]
fn a_rank_that_gave_its_boot_keeps_its_address() {
    let mut table = mk_table();
    let own = Some("boot-1");
    table
        .register(mk_registration(1, 0, 1), None, None)
        .unwrap();
    table.register(mk_registration(1, 0, 2), own, None).unwrap();
    let unnamed = table.register(mk_registration(1, 0, 3), None, None);
    assert_eq!(unnamed, Err(RegisterError::Unnamed(mk_rank(0))));
    assert_eq!(table.rank(mk_rank(0)).unwrap().rank_port, 2);
    let moved = table.register(mk_registration(1, 0, 4), own, None);
    let error = moved.unwrap_err().to_string();
    assert!(
        error.contains("at 127.0.0.1:2, not at 127.0.0.1:4"),
        "{error}"
    );
    table.register(mk_registration(1, 0, 2), own, None).unwrap();
    assert_eq!(table.rank(mk_rank(0)).unwrap().rank_port, 2);
}

#[test]
fn ranks_of_this_boot_replace_what_strangers_registered_before_them() {
    let mut table = mk_table();
    let mut other = mk_registration(2, 1, 9);
    other.page_size = 64;
    table.register(other, None, None).unwrap();
    table
        .register(mk_registration(1, 0, 1), Some("boot-1"), None)
        .unwrap();
    assert_eq!(table.topology().unwrap().page_size, 16);
    assert_eq!(table.rank(mk_rank(0)).unwrap().rank_port, 1);
    let late = table.register(mk_registration(2, 1, 9), None, None);
    assert!(matches!(late, Err(RegisterError::Conflict(_))), "{late:?}");
}

#[test]
fn a_rank_beyond_its_own_layout_is_refused() {
    let mut table = mk_table();
    assert!(
        table
            .register(mk_registration(2, 2, 1), None, None)
            .is_err()
    );
    assert!(
        table
            .register(mk_registration(0, 0, 1), None, None)
            .is_err()
    );
    assert!(
        table
            .register(mk_registration(u32::MAX, 0, 1), None, None)
            .is_err()
    );
}

#[test]
fn the_rank_of_a_room_is_remembered_for_two_minutes() {
    let mut table = mk_table();
    let now = Instant::now();
    table.set_dp_rank(7, 3, now);
    assert_eq!((table.dp_rank(7), table.dp_rank(8)), (Some(3), None));
    table.set_dp_rank(8, 1, now + ROOM_TTL + Duration::from_secs(1));
    assert_eq!((table.dp_rank(7), table.dp_rank(8)), (None, Some(1)));
}
