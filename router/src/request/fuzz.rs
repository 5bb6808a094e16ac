//! Any body of a client: refused, or spliced into an object that is the client's with the bootstrap fields.

use super::*;
use crate::splice::Bootstrap;
use pd_fuzz::{Memory, fuzz, oracle};
use pd_protocol::BootstrapRoom;
use serde_json::{Map, Value, json};

/// Up to 8192 rooms of some sixty bytes; lists of lists take eight bytes for three, and grow by doubling.
const MEMORY: Memory = Memory {
    base: 2 << 20,
    per_byte: 48,
};

const ROOM: u64 = 41;

#[test]
fn client_request() {
    fuzz!("client_request", MEMORY, |bytes| {
        for api in Api::ALL {
            match RoutingFields::parse(api, bytes) {
                Ok(fields) => check(&fields, bytes),
                Err(error) => {
                    let len = error.to_string().len();
                    assert!(len <= 512 + bytes.len(), "{len} bytes of error");
                }
            }
        }
    });
}

fn check(fields: &RoutingFields, body: &[u8]) {
    let rooms = fields.rooms.get();
    assert!((1..=ROOMS_MAX).contains(&rooms));
    assert!(fields.prompt_tokens <= body.len() as u64);
    assert!(fields.output_tokens <= OUTPUT_TOKENS_MAX * u64::from(ROOMS_MAX));
    let bootstrap = Bootstrap {
        host_json: "\"p-0\"",
        port: 8998,
        room: BootstrapRoom::new(ROOM).expect("a room"),
        array_len: match fields.rooms {
            RoomCount::One => None,
            RoomCount::Many(count) => Some(count),
        },
    };
    let spliced = fields.splice_points.splice(body, &bootstrap);
    oracle(|| is_clients_object(body, &spliced, bootstrap.array_len));
}

/// Bodies that only a lenient reader takes (numbers beyond `f64`, deep nesting) are the worker's to refuse.
fn is_clients_object(body: &[u8], spliced: &[u8], array_len: Option<u32>) {
    let Ok(mut expected) = serde_json::from_slice::<Map<String, Value>>(body) else {
        return;
    };
    let each = |value: &dyn Fn(u64) -> Value| match array_len {
        None => value(0),
        Some(len) => (0..u64::from(len)).map(value).collect(),
    };
    expected.insert("bootstrap_host".to_owned(), each(&|_| json!("p-0")));
    expected.insert("bootstrap_port".to_owned(), each(&|_| json!(8998)));
    expected.insert("bootstrap_room".to_owned(), each(&|nr| json!(ROOM + nr)));
    let actual: Map<String, Value> =
        serde_json::from_slice(spliced).expect("the spliced body is an object");
    assert_eq!(actual, expected);
}
