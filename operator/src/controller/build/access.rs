//! Who may ask the routers, and over what: Secrets with API keys and with a certificate, mounted
//! whole and read-only, and the flags that name them. The operator reads neither.

use super::args::Args;
use super::pod::{PORT_HTTP, PORT_HTTPS};
use k8s_openapi::api::core::v1::{SecretVolumeSource, Volume, VolumeMount};
use pd_crds::router::RouterSpec;

const API_KEYS: &str = "api-keys";
const TLS: &str = "tls";

/// Keys that a Secret of type `kubernetes.io/tls` has.
const TLS_CERT: &str = "tls.crt";
const TLS_KEY: &str = "tls.key";

/// Name of the port where clients go.
pub(super) fn port_name(router: &RouterSpec) -> &'static str {
    match router.tls {
        Some(_) => PORT_HTTPS,
        None => PORT_HTTP,
    }
}

pub(super) fn add_flags(args: &mut Args, router: &RouterSpec) {
    if router.api_keys.is_some() {
        args.flag("api-key-file", mount_path(API_KEYS));
    }
    if router.tls.is_some() {
        let folder = mount_path(TLS);
        args.flag("tls-cert-path", format!("{folder}/{TLS_CERT}"));
        args.flag("tls-key-path", format!("{folder}/{TLS_KEY}"));
        args.flag("prometheus-port", router.metrics_port().to_string());
    }
}

/// The Secrets' volumes, and where each is mounted.
pub(super) fn volumes(router: &RouterSpec) -> impl Iterator<Item = (Volume, VolumeMount)> {
    let sources = [(API_KEYS, &router.api_keys), (TLS, &router.tls)];
    sources
        .into_iter()
        .filter_map(|(name, source)| Some(mounted_secret(name, &source.as_ref()?.secret_name)))
}

/// A whole folder: a mount of one file (`subPath`) would never see its Secret change.
pub(super) fn mounted_secret(name: &str, secret: &str) -> (Volume, VolumeMount) {
    let volume = Volume {
        name: name.to_owned(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(secret.to_owned()),
            // A process without its keys or its certificate must not come up open.
            optional: Some(false),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    };
    let mount = VolumeMount {
        name: name.to_owned(),
        mount_path: mount_path(name),
        read_only: Some(true),
        ..VolumeMount::default()
    };
    (volume, mount)
}

pub(super) fn mount_path(name: &str) -> String {
    format!("/etc/pdserve/{name}")
}
