//! Workers found by watching pods: `--service-discovery` and the selectors.

use crate::config::DiscoveryConfig;
use clap::{ArgAction, Args};
use pd_protocol::Role;
use pd_protocol::ports;

#[derive(Clone, Debug, Args)]
pub(crate) struct DiscoveryArgs {
    /// Find workers by watching the pods that the selectors match. Given `--peer-key-file` too, they are
    /// reached by `https://`, but for those whose annotation `pdserve.io/scheme` is `http`.
    #[arg(long)]
    pub(crate) service_discovery: bool,
    /// Namespace of the pods; the router's own if absent.
    #[arg(long, value_name = "NAMESPACE")]
    pub(crate) service_discovery_namespace: Option<String>,
    /// HTTP port of workers whose pods name no port `http`.
    #[arg(long, value_name = "PORT", default_value_t = ports::HTTP)]
    pub(crate) service_discovery_port: u16,
    /// Labels of unified workers' pods, all of which must match.
    #[arg(long, num_args = 1.., action = ArgAction::Append, value_name = "KEY=VALUE")]
    pub(crate) selector: Vec<String>,
    /// Labels of prefill workers' pods. Their bootstrap port is the annotation
    /// `pdserve.io/bootstrap-port` or `sglang.ai/bootstrap-port`.
    #[arg(long, num_args = 1.., action = ArgAction::Append, value_name = "KEY=VALUE")]
    pub(crate) prefill_selector: Vec<String>,
    /// Labels of decode workers' pods.
    #[arg(long, num_args = 1.., action = ArgAction::Append, value_name = "KEY=VALUE")]
    pub(crate) decode_selector: Vec<String>,
}

/// Discovery flags that find nothing.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiscoveryArgsError {
    #[error("--{flag} {value}: a label is KEY=VALUE, such as app=prefill")]
    Label { flag: &'static str, value: String },
    #[error("--{0} needs --service-discovery")]
    WithoutDiscovery(&'static str),
    #[error(
        "--service-discovery needs --prefill-selector and --decode-selector, or --selector for unified workers"
    )]
    NoSelector,
    #[error("--{given} finds only one side of a pair; give --{missing} too")]
    HalfAPair {
        given: &'static str,
        missing: &'static str,
    },
    #[error(
        "--selector finds unified workers; --pd-disaggregation takes --prefill-selector and --decode-selector"
    )]
    UnifiedWithPairs,
}

const SELECTOR: &str = "selector";
const PREFILL: &str = "prefill-selector";
const DECODE: &str = "decode-selector";

// === impl DiscoveryArgs ===

impl DiscoveryArgs {
    /// # Errors
    /// Names the flag that is missing or malformed.
    pub(crate) fn into_config(
        self,
        pd_disaggregation: bool,
        has_key: bool,
    ) -> Result<Option<DiscoveryConfig>, DiscoveryArgsError> {
        let mut selectors = Vec::new();
        for (flag, role, labels) in [
            (SELECTOR, Role::Unified, self.selector),
            (PREFILL, Role::Prefill, self.prefill_selector),
            (DECODE, Role::Decode, self.decode_selector),
        ] {
            if let Some(selector) = join(flag, &labels)? {
                if !self.service_discovery {
                    return Err(DiscoveryArgsError::WithoutDiscovery(flag));
                }
                selectors.push((role, selector));
            }
        }
        if !self.service_discovery {
            return Ok(None);
        }
        let has = |role| selectors.iter().any(|(selects, _)| *selects == role);
        let half = |given, missing| DiscoveryArgsError::HalfAPair { given, missing };
        match (has(Role::Prefill), has(Role::Decode), has(Role::Unified)) {
            (false, false, false) => Err(DiscoveryArgsError::NoSelector),
            (true, false, _) => Err(half(PREFILL, DECODE)),
            (false, true, _) => Err(half(DECODE, PREFILL)),
            (_, _, true) if pd_disaggregation => Err(DiscoveryArgsError::UnifiedWithPairs),
            (_, _, _) => Ok(Some(DiscoveryConfig {
                namespace: self.service_discovery_namespace,
                selectors,
                port: self.service_discovery_port,
                scheme: if has_key { "https" } else { "http" },
            })),
        }
    }
}

/// One selector of all labels that a flag was given, which may hold several each.
fn join(flag: &'static str, values: &[String]) -> Result<Option<String>, DiscoveryArgsError> {
    let mut labels = Vec::new();
    for value in values {
        for label in value.split(',') {
            let parts = label.split_once('=');
            if !parts.is_some_and(|(key, value)| is_label_key(key) && is_label_text(value)) {
                return Err(DiscoveryArgsError::Label {
                    flag,
                    value: value.clone(),
                });
            }
            labels.push(label);
        }
    }
    Ok((!labels.is_empty()).then(|| labels.join(",")))
}

fn is_label_key(key: &str) -> bool {
    let (prefix, name) = key.rsplit_once('/').unwrap_or(("x", key));
    !name.is_empty() && is_label_text(name) && !prefix.is_empty() && is_label_text(prefix)
}

fn is_label_text(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests;
