//! How the processes of a deployment know each other: by the keys of a file that all of them are given.

use super::args::Args;
use super::config::BuildConfig;
use k8s_openapi::api::core::v1::Probe;
use std::path::Path;

/// Where the keys are in a container; nothing where peers are not authenticated.
pub(super) fn key_file(config: &BuildConfig) -> Option<&Path> {
    config.peer_key_file.as_deref()
}

/// Scheme of a worker's HTTP API.
pub(super) fn scheme(config: &BuildConfig) -> &'static str {
    match key_file(config) {
        Some(_) => "https",
        None => "http",
    }
}

pub(super) fn add_flag(args: &mut Args, config: &BuildConfig) {
    if let Some(file) = key_file(config) {
        args.flag("peer-key-file", file.display().to_string());
    }
}

/// A probe of a worker's HTTP API, in the scheme that it speaks. A prober has no key, and takes any certificate.
pub(super) fn probe_api(mut probe: Probe, config: &BuildConfig) -> Probe {
    if let (Some(get), Some(_)) = (&mut probe.http_get, key_file(config)) {
        get.scheme = Some("HTTPS".to_owned());
    }
    probe
}
