//! What the status of each deployment says, as gauges: they come and go with it.

use kube::ResourceExt;
use parking_lot::Mutex;
use pd_crds::slo::SloSpec;
use pd_crds::status::PoolStatus;
use pd_crds::{PdDeployment, PdDeploymentStatus};
use prometheus::{GaugeVec, IntGaugeVec, Opts, Registry};
use std::collections::HashMap;

const POOLS: [&str; 2] = ["prefill", "decode"];
const OBJECTIVES: [&str; 2] = ["ttft", "tpot"];

#[derive(Debug)]
pub(crate) struct Deployments {
    replicas: IntGaugeVec,
    conditions: IntGaugeVec,
    reasons: IntGaugeVec,
    paused: IntGaugeVec,
    objectives: GaugeVec,
    /// Labels in use, by the deployment's UID: what vanishes from a status vanishes here.
    known: Mutex<HashMap<String, Known>>,
}

#[derive(Debug, Default)]
struct Known {
    namespace: String,
    name: String,
    /// Each with its reason.
    conditions: Vec<(String, String)>,
}

// === impl Deployments ===

impl Deployments {
    pub(super) fn new(registry: &Registry) -> Self {
        let replicas = Opts::new(
            "pd_operator_pool_replicas",
            "Replicas of a pool: desired, current, updated, ready, routable and draining",
        );
        let conditions = Opts::new(
            "pd_operator_deployment_condition",
            "1 while a condition of a PDDeployment is True, else 0",
        );
        let reasons = Opts::new(
            "pd_operator_deployment_reason",
            "1 for the reason that a condition of a PDDeployment gives",
        );
        let paused = Opts::new(
            "pd_operator_rollout_paused",
            "1 while spec.rollout.paused holds new revisions back",
        );
        let objectives = Opts::new(
            "pd_operator_slo_objective_seconds",
            "Latency goal of a PDDeployment",
        );
        // `namespace` is the operator's, which Prometheus adds.
        let own = ["pddeployment_namespace", "pddeployment"];
        let labels = |more: &[&'static str]| [&own, more].concat();
        Self {
            replicas: super::register(
                registry,
                IntGaugeVec::new(replicas, &labels(&["pool", "state"])),
            ),
            conditions: super::register(
                registry,
                IntGaugeVec::new(conditions, &labels(&["condition"])),
            ),
            reasons: super::register(
                registry,
                IntGaugeVec::new(reasons, &labels(&["condition", "reason"])),
            ),
            paused: super::register(registry, IntGaugeVec::new(paused, &own)),
            objectives: super::register(
                registry,
                GaugeVec::new(objectives, &labels(&["objective"])),
            ),
            known: Mutex::default(),
        }
    }

    /// Takes over what a status says.
    pub(crate) fn record(&self, deployment: &PdDeployment, status: &PdDeploymentStatus) {
        let (namespace, name) = (
            deployment.namespace().unwrap_or_default(),
            deployment.name_any(),
        );
        let own = [namespace.as_str(), name.as_str()];
        for (pool, counted) in POOLS
            .into_iter()
            .zip([&status.pools.prefill, &status.pools.decode])
        {
            for (state, count) in states(counted) {
                let labels = [own[0], own[1], pool, state];
                self.replicas
                    .with_label_values(&labels)
                    .set(i64::from(count));
            }
        }
        for condition in &status.conditions {
            let labels = [own[0], own[1], &condition.type_];
            let holds = condition.status == "True";
            self.conditions
                .with_label_values(&labels)
                .set(i64::from(holds));
        }
        let paused = deployment.spec.rollout.paused;
        self.paused.with_label_values(&own).set(i64::from(paused));
        let SloSpec { ttft_ms, tpot_ms } = deployment.spec.slo;
        for (objective, goal) in OBJECTIVES.into_iter().zip([ttft_ms, tpot_ms]) {
            let labels = [own[0], own[1], objective];
            match goal {
                Some(ms) => {
                    let gauge = self.objectives.with_label_values(&labels);
                    gauge.set(f64::from(ms) / 1000.0);
                }
                // An error says that there was no such goal before either.
                None => drop(self.objectives.remove_label_values(&labels)),
            }
        }
        self.know(deployment, status);
    }

    /// Takes over the reasons of a status, and lets go what the one before gave beyond it.
    fn know(&self, deployment: &PdDeployment, status: &PdDeploymentStatus) {
        let (namespace, name) = (
            deployment.namespace().unwrap_or_default(),
            deployment.name_any(),
        );
        let own = [namespace.as_str(), name.as_str()];
        let conditions: Vec<(String, String)> = status
            .conditions
            .iter()
            .map(|is| (is.type_.clone(), is.reason.clone()))
            .collect();
        let uid = deployment.uid().unwrap_or_default();
        let mut known = self.known.lock();
        let before = known.remove(&uid).map(|known| known.conditions);
        for (condition, reason) in before.iter().flatten() {
            if !conditions.iter().any(|(is, _)| is == condition) {
                let labels = [own[0], own[1], condition];
                drop(self.conditions.remove_label_values(&labels));
            }
            let labels = [own[0], own[1], condition, reason];
            drop(self.reasons.remove_label_values(&labels));
        }
        for (condition, reason) in &conditions {
            let labels = [own[0], own[1], condition, reason];
            self.reasons.with_label_values(&labels).set(1);
        }
        known.insert(
            uid,
            Known {
                namespace,
                name,
                conditions,
            },
        );
    }

    /// Forgets a deployment that is gone.
    pub(crate) fn forget(&self, uid: &str) {
        let Some(known) = self.known.lock().remove(uid) else {
            return;
        };
        let own = [known.namespace.as_str(), known.name.as_str()];
        for pool in POOLS {
            for (state, _) in states(&PoolStatus::default()) {
                // An error says that it is gone already.
                drop(
                    self.replicas
                        .remove_label_values(&[own[0], own[1], pool, state]),
                );
            }
        }
        for (condition, reason) in &known.conditions {
            let labels = [own[0], own[1], condition];
            drop(self.conditions.remove_label_values(&labels));
            let labels = [own[0], own[1], condition, reason];
            drop(self.reasons.remove_label_values(&labels));
        }
        drop(self.paused.remove_label_values(&own));
        for objective in OBJECTIVES {
            drop(
                self.objectives
                    .remove_label_values(&[own[0], own[1], objective]),
            );
        }
    }
}

fn states(pool: &PoolStatus) -> [(&'static str, i32); 6] {
    let PoolStatus {
        desired,
        current,
        ready,
        routable,
        draining,
        updated,
        summary: _,
    } = pool;
    [
        ("desired", *desired),
        ("current", *current),
        ("updated", *updated),
        ("ready", *ready),
        ("routable", *routable),
        ("draining", *draining),
    ]
}

#[cfg(test)]
mod tests {
    //! Facts about what Prometheus reads.

    use super::*;
    use prometheus::{Encoder, TextEncoder};
    use serde_json::json;

    fn text(registry: &Registry) -> String {
        let mut text = Vec::new();
        let families = registry.gather();
        TextEncoder::new()
            .encode(&families, &mut text)
            .expect("text");
        let text = String::from_utf8(text).expect("UTF-8");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn gauges_come_and_go_with_their_deployment() {
        let object = json!({
            "apiVersion": "pdserve.io/v1alpha1", "kind": "PDDeployment",
            "metadata": {"name": "tiny", "namespace": "ns", "uid": "u"},
            "spec": {"model": {"source": {"hostPath": {"path": "/m.gguf"}}}, "pools": {},
                     "slo": {"ttftMs": 1500}},
        });
        let mut deployment: PdDeployment = serde_json::from_value(object).expect("a PDDeployment");
        let status = json!({
            "pools": {"prefill": {"desired": 2, "current": 2, "routable": 1, "summary": "1/2"}},
            "conditions": [{"type": "Ready", "status": "True", "reason": "Serving", "message": "",
                            "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        });
        let status: PdDeploymentStatus = serde_json::from_value(status).expect("a status");
        let registry = Registry::new();
        let deployments = Deployments::new(&registry);
        deployments.record(&deployment, &status);
        let exposed = text(&registry);
        let own = r#"pddeployment="tiny",pddeployment_namespace="ns""#;
        for line in [
            format!(r#"pd_operator_deployment_condition{{condition="Ready",{own}}} 1"#),
            format!(
                r#"pd_operator_deployment_reason{{condition="Ready",{own},reason="Serving"}} 1"#
            ),
            format!(r#"pd_operator_rollout_paused{{{own}}} 0"#),
            format!(r#"pd_operator_pool_replicas{{{own},pool="prefill",state="desired"}} 2"#),
            format!(r#"pd_operator_pool_replicas{{{own},pool="prefill",state="routable"}} 1"#),
            format!(r#"pd_operator_slo_objective_seconds{{objective="ttft",{own}}} 1.5"#),
        ] {
            assert!(
                exposed.lines().any(|is| is == line),
                "no {line} in\n{exposed}"
            );
        }
        deployment.spec.slo.ttft_ms = None;
        deployments.record(&deployment, &PdDeploymentStatus::default());
        assert!(!text(&registry).contains("Ready"), "the condition went");
        assert!(
            !text(&registry).contains("objective"),
            "the goal was dropped"
        );
        deployments.forget("u");
        assert_eq!(text(&registry), "");
    }
}
