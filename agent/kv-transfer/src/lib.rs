//! KV transfer from prefill to decode: manager, sender, receiver, bootstrap, backends.
