//! Facts about the bootstrap JSON.

use super::*;
use proptest::prelude::*;

pub(crate) fn mk_registration() -> RouteRegistration {
    RouteRegistration {
        attn_tp_size: 2,
        attn_tp_rank: 1,
        attn_cp_size: 1,
        attn_cp_rank: 0,
        attn_dp_size: 1,
        attn_dp_rank: 0,
        pp_size: 1,
        pp_rank: 0,
        system_dp_size: 4,
        system_dp_rank: 3,
        rank_ip: "127.0.0.2".to_owned(),
        rank_port: 41_001,
        page_size: 16,
        kv_cache_dtype: "float32".to_owned(),
        kv_layout: None,
        load_balance_method: Some("follow_bootstrap_room".to_owned()),
        prefill_http_port: Some(30_000),
        decode_allocation_policy: None,
    }
}

#[test]
fn the_registration_has_the_reference_field_names() {
    insta::assert_json_snapshot!(mk_registration());
}

#[test]
fn the_layout_reply_has_the_reference_field_names() {
    let info = PrefillServerInfo {
        attn_tp_size: 2,
        attn_cp_size: 1,
        dp_size: 4,
        pp_size: 1,
        page_size: 16,
        kv_cache_dtype: "float32".to_owned(),
        follow_bootstrap_room: true,
        enable_dsa_cache_layer_split: false,
        enable_kv_cache_sharding: false,
        prefill_http_port: Some(30_000),
        decode_allocation_policy: None,
        target_tp_rank: None,
        target_tp_ranks: None,
        target_cp_ranks: None,
        target_pp_ranks: None,
        required_dst_info_num: None,
        required_prefill_response_num: None,
        kv_layout: None,
    };
    insta::assert_json_snapshot!(info);
}

#[test]
fn the_system_data_parallel_rank_wins_where_there_are_several() {
    let registration = mk_registration();
    assert_eq!(registration.rank().dp_rank, 3);
    assert_eq!(registration.parallel().dp_size, 4);
}

#[test]
fn three_or_four_minus_ones_ask_for_the_layout() {
    let three: RouteQuery =
        serde_json::from_str(r#"{"engine_rank":-1,"target_dp_group":-1,"target_pp_rank":-1}"#)
            .unwrap();
    assert_eq!(three.target(), Ok(RouteTarget::Topology));
    assert_eq!(RouteQuery::TOPOLOGY.target(), Ok(RouteTarget::Topology));
}

#[test]
fn minus_one_beside_a_rank_is_refused() {
    let query = RouteQuery {
        target_tp_rank: 0,
        ..RouteQuery::TOPOLOGY
    };
    assert_eq!(query.target(), Err(InvalidRouteQuery));
}

proptest! {
    #[test]
    fn arbitrary_json_never_panics(text in ".{0,200}") {
        let _ = serde_json::from_str::<RouteRegistration>(&text);
        let _ = serde_json::from_str::<PrefillServerInfo>(&text);
    }
}
