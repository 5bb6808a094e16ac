//! Bootstrap fields for one request, for batches, and their absence.

use super::*;

fn room(n: u64) -> BootstrapRoom {
    BootstrapRoom::new(n).unwrap()
}

fn body(host: &str, rooms: OneOrMany<BootstrapRoom>) -> BootstrapBody {
    BootstrapBody {
        host: Some(OneOrMany::One(host.to_owned())),
        port: None,
        room: Some(rooms),
    }
}

#[test]
fn a_unified_worker_ignores_them() {
    let fields = body("p", OneOrMany::One(room(5))).resolve(Role::Unified, 2);
    assert_eq!(fields, Ok(vec![None, None]));
}

#[test]
fn one_room_stands_for_the_first_part() {
    let fields = body("p", OneOrMany::One(room(5)))
        .resolve(Role::Prefill, 3)
        .unwrap();
    let fields: Vec<_> = fields.into_iter().flatten().collect();
    assert_eq!(
        fields
            .iter()
            .map(|f| f.bootstrap_room.get())
            .collect::<Vec<_>>(),
        [5, 6, 7]
    );
    assert!(
        fields
            .iter()
            .all(|f| f.bootstrap_host == "p" && f.bootstrap_port == 8998)
    );
}

#[test]
fn a_list_has_one_room_per_part() {
    let rooms = || OneOrMany::Many(vec![room(9), room(2)]);
    let fields = body("p", rooms()).resolve(Role::Decode, 2).unwrap();
    assert_eq!(fields[1].as_ref().unwrap().bootstrap_room, room(2));
    let why = body("p", rooms()).resolve(Role::Decode, 3).unwrap_err();
    assert_eq!(why.status, 400);
    assert!(
        why.message
            .contains("2 elements, but the request has 3 parts")
    );
}

#[test]
fn absence_on_a_pair_is_answered_with_the_way_out() {
    let why = BootstrapBody::default()
        .resolve(Role::Decode, 1)
        .unwrap_err();
    assert_eq!(why.param.as_deref(), Some("bootstrap_host"));
    assert!(why.message.contains("send requests to the router"));
}

#[test]
fn rooms_never_pass_the_largest() {
    let why = body("p", OneOrMany::One(BootstrapRoom::MAX)).resolve(Role::Prefill, 2);
    assert!(why.is_err());
}

#[test]
fn a_port_is_a_number_or_null_alone_or_in_a_list() {
    let ports = |json: &str| -> Vec<u16> {
        let ports: OneOrMany<BootstrapPort> = serde_json::from_str(json).unwrap();
        ports
            .into_vec()
            .into_iter()
            .map(BootstrapPort::get)
            .collect()
    };
    assert_eq!(ports("9000"), [9000]);
    assert_eq!(ports("null"), [8998]);
    assert_eq!(ports("[9000, null]"), [9000, 8998]);
    let why = serde_json::from_str::<OneOrMany<BootstrapPort>>("70000").unwrap_err();
    assert!(why.to_string().contains("a number in 0..=65535"), "{why}");
}
