//! Gangs: pods that are of use only together. A replica that spans nodes is one, and so is the first pair of a
//! deployment: what has prefill and no decode serves nothing, and holds GPUs.
//!
//! Schedulers that place gangs read how many pods one has from an object of their own, a PodGroup, which a pod names in
//! a way of that scheduler. Source: their APIs `scheduling.k8s.io` (KEP 4671), `scheduling.x-k8s.io` and
//! `scheduling.volcano.sh`.
//!
//! Kueue places nothing: it keeps pods from any scheduler until there is quota for all of a group, and knows groups by what
//! their pods say. Source: kueue.sigs.k8s.io, plain pods, and `pod-suspending-parent` in its changelog (0.12 to 0.16).

use super::revision;
use crate::controller::site::GangApis;
use k8s_openapi::api::core::v1::{Pod, PodSchedulingGroup};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::ResourceExt;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use pd_crds::PdDeploymentSpec;
use pd_crds::scheduling::GangScheduling;
use pd_protocol::labels;
use serde_json::json;

const KIND: &str = "PodGroup";
/// Labels and annotations that Kueue reads.
const QUEUE_NAME: &str = "kueue.x-k8s.io/queue-name";
const POD_GROUP_NAME: &str = "kueue.x-k8s.io/pod-group-name";
const MANAGED: &str = "kueue.x-k8s.io/managed";
const TOTAL_COUNT: &str = "kueue.x-k8s.io/pod-group-total-count";
/// Its pods run until they are deleted: one that ends gives no quota back by itself.
const SERVING: &str = "kueue.x-k8s.io/pod-group-serving";
/// Another controller makes and deletes them, so that no finalizer keeps their names.
const SUSPENDING_PARENT: &str = "kueue.x-k8s.io/pod-suspending-parent";
/// Pods of one value are counted as the first of them looks.
const ROLE_HASH: &str = "kueue.x-k8s.io/role-hash";
const COSCHEDULING_LABEL: &str = "scheduling.x-k8s.io/pod-group";
const VOLCANO_ANNOTATION: &str = "scheduling.k8s.io/group-name";
/// Names under which the other schedulers run, as their own charts install them; a `podTemplate` may say otherwise.
const COSCHEDULING: &str = "scheduler-plugins-scheduler";
const VOLCANO: &str = "volcano";

/// A gang that a pod is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gang {
    pub(crate) name: String,
    /// Pods that it has when it is whole.
    pub(crate) size: u32,
}

/// Who gives nodes to all pods of a gang, or to none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GangScheduler {
    /// Kubernetes' own, by the version of its API.
    Kubernetes(String),
    Coscheduling,
    Volcano,
    /// None: it lets all pods of a gang to the pods' own scheduler, or none.
    Kueue {
        queue: String,
        /// Revision of both pools together: what quota is asked for.
        shapes: String,
    },
}

// === impl Gang ===

impl Gang {
    /// As a pod says.
    pub(crate) fn of(metadata: &ObjectMeta) -> Option<Self> {
        let name = metadata.labels.as_ref()?.get(labels::GANG)?;
        let size = metadata.annotations.as_ref()?.get(labels::GANG_SIZE)?;
        Some(Self {
            name: name.clone(),
            size: size.parse().ok()?,
        })
    }

    /// Makes a pod one of it.
    pub(super) fn take_in(&self, pod: &mut Pod, scheduler: Option<&GangScheduler>) {
        let labels = pod.labels_mut();
        labels.insert(labels::GANG.to_owned(), self.name.clone());
        if scheduler == Some(&GangScheduler::Coscheduling) {
            labels.insert(COSCHEDULING_LABEL.to_owned(), self.name.clone());
        }
        let annotations = pod.annotations_mut();
        annotations.insert(labels::GANG_SIZE.to_owned(), self.size.to_string());
        if scheduler == Some(&GangScheduler::Volcano) {
            annotations.insert(VOLCANO_ANNOTATION.to_owned(), self.name.clone());
        }
        let spec = pod.spec.get_or_insert_default();
        let program = match scheduler {
            None => return,
            Some(GangScheduler::Kueue { queue, shapes }) => {
                self.wait_in(pod, queue, shapes);
                return;
            }
            Some(GangScheduler::Kubernetes(_)) => {
                spec.scheduling_group = Some(PodSchedulingGroup {
                    pod_group_name: Some(self.name.clone()),
                });
                return;
            }
            Some(GangScheduler::Coscheduling) => COSCHEDULING,
            Some(GangScheduler::Volcano) => VOLCANO,
        };
        let name = spec.scheduler_name.get_or_insert_default();
        if name.is_empty() {
            program.clone_into(name);
        }
    }

    fn wait_in(&self, pod: &mut Pod, queue: &str, shapes: &str) {
        let labels = pod.labels_mut();
        let role = labels.get(labels::ROLE).cloned().unwrap_or_default();
        let leads = labels.get(labels::NODE_RANK).is_none_or(|rank| rank == "0");
        let role = if leads {
            role
        } else {
            format!("{role}-follower")
        };
        for (name, value) in [
            (QUEUE_NAME, queue),
            (POD_GROUP_NAME, &self.name),
            (MANAGED, "true"),
        ] {
            labels.insert(name.to_owned(), value.to_owned());
        }
        let annotations = pod.annotations_mut();
        for (name, value) in [
            (TOTAL_COUNT, self.size.to_string().as_str()),
            (SERVING, "true"),
            (SUSPENDING_PARENT, labels::GROUP),
            (ROLE_HASH, &role),
            (labels::GANG_SHAPES, shapes),
        ] {
            annotations.insert(name.to_owned(), value.to_owned());
        }
    }

    /// What its scheduler reads of how many pods it has; gone when its owners are. Nothing where the pods say so themselves.
    pub(crate) fn pod_group(
        &self,
        scheduler: &GangScheduler,
        namespace: &str,
        owners: Vec<OwnerReference>,
    ) -> Option<(ApiResource, DynamicObject)> {
        let resource = scheduler.api()?;
        let spec = match scheduler {
            GangScheduler::Kueue { .. } => return None,
            GangScheduler::Kubernetes(_) => {
                json!({"schedulingPolicy": {"gang": {"minCount": self.size}}})
            }
            GangScheduler::Coscheduling | GangScheduler::Volcano => {
                json!({"minMember": self.size})
            }
        };
        let mut group = DynamicObject::new(&self.name, &resource).within(namespace);
        group.metadata.owner_references = Some(owners);
        group.data = json!({"spec": spec});
        Some((resource, group))
    }
}

// === impl GangScheduler ===

impl GangScheduler {
    /// The one that a spec asks for, as far as the cluster has it.
    pub(crate) fn choose(spec: &PdDeploymentSpec, apis: &GangApis) -> Option<Self> {
        match spec.scheduling.gang {
            GangScheduling::Auto | GangScheduling::Kubernetes => {
                apis.kubernetes.clone().map(Self::Kubernetes)
            }
            GangScheduling::Coscheduling => apis.coscheduling.then_some(Self::Coscheduling),
            GangScheduling::Volcano => apis.volcano.then_some(Self::Volcano),
            GangScheduling::Kueue => {
                apis.kueue.as_ref()?;
                Some(Self::Kueue {
                    queue: spec.scheduling.queue.clone()?,
                    shapes: revision::of_pools(spec),
                })
            }
            GangScheduling::None => None,
        }
    }

    /// Whether it reads PodGroups.
    pub(crate) fn reads_pod_groups(&self) -> bool {
        self.api().is_some()
    }

    fn api(&self) -> Option<ApiResource> {
        let (group, version) = match self {
            Self::Kueue { .. } => return None,
            Self::Kubernetes(version) => (GangApis::KUBERNETES, version.as_str()),
            Self::Coscheduling => GangApis::COSCHEDULING,
            Self::Volcano => GangApis::VOLCANO,
        };
        Some(ApiResource::from_gvk(&GroupVersionKind::gvk(
            group, version, KIND,
        )))
    }
}

#[cfg(test)]
mod tests {
    //! Facts about pods of a gang, and about its PodGroup.

    use super::*;
    use pd_crds::document;

    const ASKED: [(GangScheduling, &str); 4] = [
        (
            GangScheduling::Kueue,
            "/metadata/labels/kueue.x-k8s.io~1pod-group-name",
        ),
        (
            GangScheduling::Kubernetes,
            "/spec/schedulingGroup/podGroupName",
        ),
        (
            GangScheduling::Coscheduling,
            "/metadata/labels/scheduling.x-k8s.io~1pod-group",
        ),
        (
            GangScheduling::Volcano,
            "/metadata/annotations/scheduling.k8s.io~1group-name",
        ),
    ];

    fn mk_apis() -> GangApis {
        GangApis {
            kubernetes: Some("v1alpha2".to_owned()),
            coscheduling: true,
            volcano: true,
            kueue: Some("v1beta2".to_owned()),
        }
    }

    fn choose(asked: GangScheduling, apis: &GangApis) -> Option<GangScheduler> {
        let text = "{apiVersion: pdserve.io/v1alpha1, kind: PDDeployment, metadata: {name: a},
            spec: {model: {source: {hostPath: {path: /m}}}, pools: {}}}";
        let mut spec = document::parse(text).expect("a deployment").spec;
        spec.scheduling.gang = asked;
        spec.scheduling.queue = (asked == GangScheduling::Kueue).then(|| "gpus".to_owned());
        GangScheduler::choose(&spec, apis)
    }

    fn mk_gang() -> Gang {
        Gang {
            name: "a-x7k2p".to_owned(),
            size: 3,
        }
    }

    #[test]
    fn a_pod_names_its_gang_where_its_scheduler_looks_and_where_the_operator_does() {
        for (asked, place) in ASKED {
            let scheduler = choose(asked, &mk_apis());
            let mut pod = Pod::default();
            mk_gang().take_in(&mut pod, scheduler.as_ref());
            assert_eq!(Gang::of(&pod.metadata), Some(mk_gang()), "{asked:?}");
            assert_eq!(
                json!(pod).pointer(place),
                Some(&json!("a-x7k2p")),
                "{asked:?}"
            );
        }
    }

    #[test]
    fn a_template_may_name_the_scheduler() {
        let scheduler = Some(GangScheduler::Volcano);
        let named = |given: Option<&str>| {
            let mut pod = Pod::default();
            let spec = pod.spec.get_or_insert_default();
            spec.scheduler_name = given.map(str::to_owned);
            mk_gang().take_in(&mut pod, scheduler.as_ref());
            pod.spec.and_then(|spec| spec.scheduler_name)
        };
        assert_eq!(named(None).as_deref(), Some("volcano"));
        assert_eq!(named(Some("mine")).as_deref(), Some("mine"));
    }

    #[test]
    fn a_pod_group_says_how_many_pods_there_are() {
        let said = |scheduler: &GangScheduler, place: &str| {
            let made = mk_gang().pod_group(scheduler, "ns", Vec::new());
            let (api, group) = made.expect("a PodGroup");
            let count = json!(group).pointer(place).cloned();
            assert_eq!(count, Some(json!(3)), "{group:?}");
            (api.api_version, api.plural)
        };
        let own = GangScheduler::Kubernetes("v1alpha2".to_owned());
        let is = |api: &str| (api.to_owned(), "podgroups".to_owned());
        assert_eq!(
            said(&own, "/spec/schedulingPolicy/gang/minCount"),
            is("scheduling.k8s.io/v1alpha2")
        );
        assert_eq!(
            said(&GangScheduler::Coscheduling, "/spec/minMember"),
            is("scheduling.x-k8s.io/v1alpha1")
        );
        assert_eq!(
            said(&GangScheduler::Volcano, "/spec/minMember"),
            is("scheduling.volcano.sh/v1beta1")
        );
    }

    #[test]
    fn a_pod_that_kueue_queues_says_all_of_its_group() {
        let scheduler = choose(GangScheduling::Kueue, &mk_apis()).expect("Kueue");
        assert!(mk_gang().pod_group(&scheduler, "ns", Vec::new()).is_none());
        let said = |rank: &str| {
            let mut pod = Pod::default();
            let labels = pod.labels_mut();
            labels.insert(labels::ROLE.to_owned(), "prefill".to_owned());
            labels.insert(labels::NODE_RANK.to_owned(), rank.to_owned());
            mk_gang().take_in(&mut pod, Some(&scheduler));
            let spec = pod.spec.unwrap_or_default();
            assert_eq!((spec.scheduling_group, spec.scheduler_name), (None, None));
            let labels = pod.metadata.labels.unwrap_or_default();
            assert_eq!(labels[QUEUE_NAME], "gpus");
            assert_eq!(labels[MANAGED], "true");
            let annotations = pod.metadata.annotations.unwrap_or_default();
            assert_eq!(
                (&*annotations[TOTAL_COUNT], &*annotations[SERVING]),
                ("3", "true")
            );
            annotations[ROLE_HASH].clone()
        };
        assert_eq!([said("0"), said("2")], ["prefill", "prefill-follower"]);
    }

    #[test]
    fn what_the_cluster_does_not_serve_is_not_chosen() {
        let nothing = GangApis::default();
        for asked in [
            GangScheduling::Auto,
            GangScheduling::Volcano,
            GangScheduling::Kueue,
        ] {
            assert_eq!(choose(asked, &nothing), None, "{asked:?}");
        }
        let chosen = choose(GangScheduling::Auto, &mk_apis());
        assert_eq!(
            chosen,
            Some(GangScheduler::Kubernetes("v1alpha2".to_owned()))
        );
        let none = choose(GangScheduling::None, &mk_apis());
        assert_eq!(none, None);
    }
}
