//! The heads of requests and answers: what goes before a request's body, and what an answer's
//! head says, above all where its body ends.

use super::chunked::Chunked;
use super::endpoint::Endpoint;
use crate::sse::blank_line_end;
use bytes::buf::Chain;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderName, HeaderValue, TRANSFER_ENCODING};
use http::response::{Parts, Response};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, StatusCode, Version};
use std::io::Write;

/// A head larger than this is none.
const HEAD_BYTES_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 100;

/// A request as it goes over the wire: its head, then its body.
pub(crate) type Outgoing = Chain<Bytes, Bytes>;

/// Where an answer's body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// After this many more bytes.
    Length(u64),
    Chunked(Chunked),
    /// With the connection.
    Close,
}

/// An answer's head.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) parts: Parts,
    pub(super) framing: Framing,
    /// Whether the connection takes another request after the body.
    pub(super) keeps_alive: bool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum HeadError {
    #[error("its answer is not HTTP/1: {0}")]
    Malformed(#[from] httparse::Error),
    #[error("the head of its answer is larger than {HEAD_BYTES_MAX} bytes")]
    TooLarge,
    #[error("its answer has a header that cannot be relayed: {0}")]
    Header(String),
    #[error("its answer says in a way that is not understood where its body ends")]
    Framing,
}

/// Encodes a request. `headers` must not hold `host`, `content-length` or what concerns one
/// connection only.
pub(super) fn encode(
    endpoint: &Endpoint,
    method: &Method,
    path: &PathAndQuery,
    headers: &HeaderMap,
    body: Bytes,
) -> Outgoing {
    let headers_len: usize = headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + 4)
        .sum();
    let authority = endpoint.authority();
    // Punctuation, names and the length's digits fit into 64 bytes.
    let rest_len = method.as_str().len() + path.as_str().len() + authority.len() + 64;
    let mut head = BytesMut::with_capacity(headers_len + rest_len);
    for part in [
        method.as_str(),
        " ",
        path.as_str(),
        " HTTP/1.1\r\nhost: ",
        authority,
        "\r\n",
    ] {
        head.put_slice(part.as_bytes());
    }
    for (name, value) in headers {
        head.put_slice(name.as_str().as_bytes());
        head.put_slice(b": ");
        head.put_slice(value.as_bytes());
        head.put_slice(b"\r\n");
    }
    if !(body.is_empty() && method == Method::GET) {
        let mut writer = (&mut head).writer();
        write!(writer, "content-length: {}\r\n", body.len())
            .expect("writing to memory does not fail");
    }
    head.put_slice(b"\r\n");
    head.freeze().chain(body)
}

/// Takes the answer's head off `buffer`; `None` until all of it is there. Interim answers (1xx)
/// are skipped.
///
/// # Errors
/// Why it is no answer that can be relayed.
pub(super) fn take(buffer: &mut BytesMut) -> Result<Option<Head>, HeadError> {
    while let Some(len) = blank_line_end(buffer, 0) {
        let head = read(&buffer.split_to(len).freeze())?;
        let status = head.parts.status;
        if !status.is_informational() || status == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(Some(head));
        }
    }
    if buffer.len() > HEAD_BYTES_MAX {
        Err(HeadError::TooLarge)
    } else {
        Ok(None)
    }
}

fn read(bytes: &Bytes) -> Result<Head, HeadError> {
    let mut fields = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut fields);
    if response.parse(bytes)?.is_partial() {
        return Err(httparse::Error::Status.into());
    }
    let mut parts = Response::new(()).into_parts().0;
    let code = response.code.unwrap_or_default();
    parts.status = StatusCode::from_u16(code).map_err(|_| httparse::Error::Status)?;
    if response.version == Some(0) {
        parts.version = Version::HTTP_10;
    }
    parts.headers.reserve(response.headers.len());
    for field in &*response.headers {
        let unfit = || HeadError::Header(field.name.to_owned());
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| unfit())?;
        let value = HeaderValue::from_maybe_shared(bytes.slice_ref(field.value));
        parts.headers.append(name, value.map_err(|_| unfit())?);
    }
    let framing = framing(&parts)?;
    Ok(Head {
        keeps_alive: keeps_alive(&parts, &framing),
        framing,
        parts,
    })
}

fn framing(parts: &Parts) -> Result<Framing, HeadError> {
    if matches!(
        parts.status,
        StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
    ) {
        return Ok(Framing::Length(0));
    }
    if let Some(coding) = parts.headers.get_all(TRANSFER_ENCODING).iter().next_back() {
        let is_chunked = last_token(coding).eq_ignore_ascii_case(b"chunked");
        return if is_chunked {
            Ok(Framing::Chunked(Chunked::default()))
        } else {
            Err(HeadError::Framing)
        };
    }
    let mut lengths = parts.headers.get_all(CONTENT_LENGTH).iter();
    let Some(length) = lengths.next() else {
        return Ok(Framing::Close);
    };
    if lengths.any(|other| other != length) || !length.as_bytes().iter().all(u8::is_ascii_digit) {
        return Err(HeadError::Framing);
    }
    let digits = length.to_str().ok();
    let length = digits.and_then(|digits| digits.parse().ok());
    length.map(Framing::Length).ok_or(HeadError::Framing)
}

/// Whether the connection takes another request after this answer.
fn keeps_alive(parts: &Parts, framing: &Framing) -> bool {
    let says = |option: &[u8]| {
        let values = parts.headers.get_all(CONNECTION).iter();
        let mut tokens = values.flat_map(|value| value.as_bytes().split(|&byte| byte == b','));
        tokens.any(|token| token.trim_ascii().eq_ignore_ascii_case(option))
    };
    let is_ambiguous =
        matches!(framing, Framing::Chunked(_)) && parts.headers.contains_key(CONTENT_LENGTH);
    let is_persistent = match parts.version {
        Version::HTTP_11 => !says(b"close"),
        _ => says(b"keep-alive"),
    };
    is_persistent && !is_ambiguous && *framing != Framing::Close
}

fn last_token(value: &HeaderValue) -> &[u8] {
    let mut tokens = value.as_bytes().rsplit(|&byte| byte == b',');
    tokens.next().unwrap_or_default().trim_ascii()
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
