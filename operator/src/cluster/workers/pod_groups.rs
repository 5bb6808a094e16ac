//! PodGroups, by which a scheduler of gangs knows how many pods one has.

use super::WorkerWrite;
use crate::cluster::apply::{Writer, post_params};
use crate::cluster::error::ApplyError;
use crate::cluster::facts::PodFacts;
use crate::cluster::snapshot::Snapshot;
use crate::controller::build::gang::{Gang, GangScheduler};
use crate::controller::build::group::owner;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Api;
use kube::api::DynamicObject;

/// The PodGroups of gangs all of whose pods there are, where a scheduler reads them.
pub(super) fn pod_groups<'a>(snapshot: &'a Snapshot<'_>) -> impl Iterator<Item = WorkerWrite<'a>> {
    let whole = snapshot.gangs.gathering.iter();
    let whole = whole.filter(|it| it.members == it.gang.size);
    whole.filter_map(|it| {
        let is_of = |facts: &&PodFacts| {
            let gang = Gang::of(&facts.pod.metadata);
            gang.is_some_and(|gang| gang.name == it.gang.name)
        };
        let leaders: Vec<&PodFacts> = snapshot.pods.iter().filter(is_of).collect();
        let role = leaders.first()?.component.pool_role()?;
        let scheduler = snapshot.effective.resources.pool(role).gangs.as_ref();
        let scheduler = scheduler.filter(|it| it.reads_pod_groups())?;
        Some(WorkerWrite::CreatePodGroup {
            gang: &it.gang,
            scheduler,
            leaders,
        })
    })
}

/// Makes a PodGroup that was not made before.
pub(super) async fn create_pod_group(
    writer: &Writer<'_>,
    gang: &Gang,
    scheduler: &GangScheduler,
    leaders: &[&PodFacts],
) -> Result<bool, ApplyError> {
    let (memories, uid) = (&writer.context.memories, writer.uid());
    let known = memories.read(&uid, |memory| memory.pod_groups.contains(&gang.name));
    if known == Some(true) {
        return Ok(false);
    }
    let owners = leaders.iter().map(|facts| OwnerReference {
        // Of several owners none is the controller.
        controller: None,
        ..owner(&facts.pod.metadata)
    });
    let made = gang.pod_group(scheduler, writer.namespace, owners.collect());
    let Some((api, group)) = made else {
        return Ok(false);
    };
    let client = writer.context.client.clone();
    let api: Api<DynamicObject> = Api::namespaced_with(client, writer.namespace, &api);
    match api.create(&post_params(), &group).await {
        Ok(_) => {}
        // Its name is of one moment: it is ours.
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        Err(source) => {
            return Err(ApplyError::Write {
                verb: "create",
                kind: "PodGroup".to_owned(),
                name: gang.name.clone(),
                source: Box::new(source),
            });
        }
    }
    memories.update(&uid, |memory| memory.pod_groups.insert(gang.name.clone()));
    Ok(true)
}
