//! The head of the client's response: decode's, and who served the request.

use crate::dispatch::PairResponse;
use crate::headers;
use crate::workers::{Lease, Worker};
use http::header::{CONTENT_LENGTH, HeaderName, HeaderValue};
use http::response::Parts;
use pd_protocol::labels::{HEADER_DECODE, HEADER_PREFILL, HEADER_ROOM};

pub(super) fn build(mut head: Parts, decode: &Lease, pair: Option<&PairResponse>) -> Parts {
    headers::remove_hop_by_hop(&mut head.headers);
    head.version = http::Version::HTTP_11;
    head.extensions.clear();
    name_worker(&mut head, HEADER_DECODE, decode.worker());
    if let Some(pair) = pair {
        name_worker(&mut head, HEADER_PREFILL, &pair.prefill);
        if let Some((rooms, _)) = &pair.rooms {
            let name = HeaderName::from_static(HEADER_ROOM);
            let room = HeaderValue::from(rooms.first().get());
            head.headers.insert(name, room);
        }
        if pair.logprobs.is_some() {
            head.headers.remove(CONTENT_LENGTH);
        }
    }
    head
}

fn name_worker(head: &mut Parts, name: &'static str, worker: &Worker) {
    head.headers
        .insert(HeaderName::from_static(name), worker.id_header.clone());
}
