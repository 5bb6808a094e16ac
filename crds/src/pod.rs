//! The part of a pod that pdserve reads. The operator keeps thousands and decodes each change, so the
//! decoder skips all other fields. Names are Kubernetes', and a missing field is empty: one odd pod must
//! not break the watch on all.

use k8s_openapi::api::core::v1::{self, ContainerPort, ContainerState, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{Metadata, Resource};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct Pod {
    pub metadata: ObjectMeta,
    pub spec: Option<PodSpec>,
    pub status: Option<PodStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec {
    pub node_name: Option<String>,
    pub service_account_name: Option<String>,
    pub termination_grace_period_seconds: Option<i64>,
    pub containers: Vec<Container>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct Container {
    pub name: String,
    pub image: Option<String>,
    pub ports: Option<Vec<ContainerPort>>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodStatus {
    pub phase: Option<String>,
    #[serde(rename = "podIP")]
    pub pod_ip: Option<String>,
    pub conditions: Option<Vec<PodCondition>>,
    pub init_container_statuses: Option<Vec<ContainerStatus>>,
    pub container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerStatus {
    pub name: String,
    pub ready: bool,
    pub restart_count: i32,
    pub state: Option<ContainerState>,
    pub last_state: Option<ContainerState>,
}

// === impl Pod ===

impl Resource for Pod {
    const API_VERSION: &'static str = v1::Pod::API_VERSION;
    const GROUP: &'static str = v1::Pod::GROUP;
    const KIND: &'static str = v1::Pod::KIND;
    const VERSION: &'static str = v1::Pod::VERSION;
    const URL_PATH_SEGMENT: &'static str = v1::Pod::URL_PATH_SEGMENT;
    type Scope = <v1::Pod as Resource>::Scope;
}

impl Metadata for Pod {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    //! Facts about what is read of a pod.

    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_that_says_little_is_read_all_the_same() {
        let text = r#"{"metadata": {"name": "p"}, "spec": {}, "status": {"containerStatuses": [{"name": "agent"}]}}"#;
        let read: Pod = serde_json::from_str(text).expect("a Pod");
        let statuses = read.status.and_then(|status| status.container_statuses);
        let unready = ContainerStatus {
            name: "agent".to_owned(),
            ..ContainerStatus::default()
        };
        assert_eq!(statuses, Some(vec![unready]));
    }

    #[test]
    fn unread_fields_are_skipped_and_the_rest_is_as_kubernetes_reads_it() {
        let text = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {"nodeName": "n", "serviceAccountName": "a", "volumes": [{"name": "v"}],
                "containers": [{"name": "agent", "image": "i", "args": ["--x"],
                    "ports": [{"name": "http", "containerPort": 1}]}]},
            "status": {"phase": "Running", "podIP": "10.0.0.1", "qosClass": "Burstable",
                "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [{"name": "agent", "image": "i", "imageID": "", "ready": true,
                    "restartCount": 2, "state": {"running": {}}, "lastState": {}}]},
        })
        .to_string();
        let read: Pod = serde_json::from_str(&text).expect("a Pod");
        let whole: v1::Pod = serde_json::from_str(&text).expect("a Pod of Kubernetes");
        let (spec, all) = (read.spec.unwrap(), whole.spec.unwrap());
        assert_eq!(spec.node_name, all.node_name);
        assert_eq!(spec.service_account_name, all.service_account_name);
        assert_eq!(spec.containers[0].ports, all.containers[0].ports);
        let (status, all) = (read.status.unwrap(), whole.status.unwrap());
        assert_eq!((status.phase, status.pod_ip), (all.phase, all.pod_ip));
        assert_eq!(status.conditions, all.conditions);
        let (container, whole) = (
            &status.container_statuses.unwrap()[0],
            &all.container_statuses.unwrap()[0],
        );
        assert_eq!(container.restart_count, whole.restart_count);
        assert_eq!(container.state, whole.state);
        assert_eq!(container.last_state, whole.last_state);
    }
}
