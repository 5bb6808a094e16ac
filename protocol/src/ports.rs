//! Well-known ports and reserved addresses. Every worker has an address of its own, so all
//! workers share these numbers.

/// Client-facing HTTP of routers and agents; SGLang's default.
pub const HTTP: u16 = 30000;
/// Bootstrap server beside prefill; SGLang's `--disaggregation-bootstrap-port`.
pub const BOOTSTRAP: u16 = 8998;
/// Admin API of routers and agents (cordon, drain, timelines): outside the Service, behind a token.
pub const ADMIN: u16 = 30900;
/// SGLang's `FAKE_BOOTSTRAP_HOST`: a request with this `bootstrap_host` uses the fake transfer
/// backend. Source: seed 001, "Dummy Test".
pub const FAKE_BOOTSTRAP_HOST: &str = "2.2.2.2";
