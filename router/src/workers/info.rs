//! What a worker says of itself in `/server_info`: its models, what its KV bytes mean, which
//! process it is and where its bootstrap server listens.

use pd_protocol::workers::Role;
use serde::Deserialize;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerInfo {
    /// Names under which clients ask for its model, sorted.
    pub models: Vec<String>,
    pub kv_compat: Option<String>,
    pub boot_id: Option<String>,
    pub role: Option<Role>,
    pub bootstrap_port: Option<u16>,
}

/// `/server_info` as far as it is read; SGLang's own servers send some of these.
#[derive(Deserialize)]
struct ServerInfo {
    #[serde(default)]
    served_model_name: Option<OneOrMany>,
    #[serde(default)]
    model_path: Option<String>,
    #[serde(default)]
    kv_compat: Option<String>,
    #[serde(default)]
    boot_id: Option<String>,
    #[serde(default)]
    disaggregation_mode: Option<String>,
    #[serde(default, alias = "disaggregation_bootstrap_port")]
    bootstrap_port: Option<u16>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

// === impl WorkerInfo ===

impl WorkerInfo {
    /// # Errors
    /// The JSON error, with its position.
    pub fn parse(json: &[u8]) -> Result<Self, serde_json::Error> {
        let info: ServerInfo = serde_json::from_slice(json)?;
        let mut models = match info.served_model_name {
            Some(OneOrMany::One(name)) => vec![name],
            Some(OneOrMany::Many(names)) => names,
            None => info.model_path.into_iter().collect(),
        };
        models.sort();
        models.dedup();
        Ok(Self {
            models,
            kv_compat: info.kv_compat,
            boot_id: info.boot_id,
            role: info.disaggregation_mode.as_deref().and_then(role),
            bootstrap_port: info.bootstrap_port,
        })
    }
}

fn role(mode: &str) -> Option<Role> {
    match mode {
        "prefill" => Some(Role::Prefill),
        "decode" => Some(Role::Decode),
        "null" => Some(Role::Null),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    //! Facts about `/server_info`.

    use super::*;

    #[test]
    fn a_model_goes_by_its_served_names_or_else_its_path() {
        let named = WorkerInfo::parse(br#"{"served_model_name":["b","a"],"model_path":"/m"}"#);
        assert_eq!(named.unwrap().models, ["a", "b"]);
        let plain = WorkerInfo::parse(br#"{"served_model_name":null,"model_path":"/m"}"#);
        assert_eq!(plain.unwrap().models, ["/m"]);
    }

    #[test]
    fn sglangs_spelling_of_the_bootstrap_port_is_read() {
        let json = br#"{"disaggregation_mode":"prefill","disaggregation_bootstrap_port":8999}"#;
        let info = WorkerInfo::parse(json).unwrap();
        assert_eq!(info.bootstrap_port, Some(8999));
        assert_eq!(info.role, Some(Role::Prefill));
    }
}
