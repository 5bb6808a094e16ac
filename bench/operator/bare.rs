//! The floor under the operator's time: what the control plane takes when a bare client writes the same
//! objects, thirty-two at a time, without reading, thinking or waiting for anything.

use super::{Bench, CREATES_AT_ONCE, count, mk_deployment, mk_named, until};
use anyhow::{Result, ensure};
use futures_util::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use pd_crds::PdDeployment;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::Instant;

/// What a deployment has of its own: group, version, kind, plural.
const KINDS: [(&str, &str, &str, &str); 7] = [
    ("pdserve.io", "v1alpha1", "PDPool", "pdpools"),
    ("", "v1", "Pod", "pods"),
    ("apps", "v1", "Deployment", "deployments"),
    ("apps", "v1", "ControllerRevision", "controllerrevisions"),
    ("", "v1", "Service", "services"),
    ("", "v1", "Secret", "secrets"),
    (
        "policy",
        "v1",
        "PodDisruptionBudget",
        "poddisruptionbudgets",
    ),
];
/// Of what a manager of pods and its own kinds writes, and no more.
const FEW: [&str; 2] = ["PDPool", "Pod"];

/// Which objects are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// As many writes as the operator makes, of all its objects.
    All,
    /// Own kinds and three pods.
    OwnAndPods,
}

/// An object to be written again under another name.
struct Template {
    resource: ApiResource,
    object: Value,
}

impl Template {
    fn copy(&self, nr: usize) -> Result<DynamicObject> {
        let name = format!("m{nr}");
        let text = self.object.to_string();
        // Every name begins with the deployment's, which stands alone in labels.
        let text = text.replace("\"m0-", &format!("\"{name}-"));
        let text = text.replace("\"m0\"", &format!("\"{name}\""));
        Ok(serde_json::from_str(&text)?)
    }
}

/// What the operator has made of the deployment `m0`, as if a user had written it.
async fn templates(client: &Client, which: Which) -> Result<Vec<Template>> {
    let mut found = Vec::new();
    for (group, version, kind, plural) in KINDS {
        if which == Which::OwnAndPods && !FEW.contains(&kind) {
            continue;
        }
        let api_version = if group.is_empty() {
            version.to_owned()
        } else {
            format!("{group}/{version}")
        };
        let resource = ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version,
            kind: kind.to_owned(),
            plural: plural.to_owned(),
        };
        let api: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &resource);
        let list = ListParams::default().labels("pdserve.io/deployment=m0");
        for object in api.list(&list).await?.items {
            let mut object = serde_json::to_value(object)?;
            let (labels, annotations, name) = (
                object["metadata"]["labels"].take(),
                object["metadata"]["annotations"].take(),
                object["metadata"]["name"].take(),
            );
            let is_routers = labels["pdserve.io/role"] == "router" && kind == "Pod";
            if is_routers {
                continue; // The controller manager makes it.
            }
            object["metadata"] =
                json!({"name": name, "labels": labels, "annotations": annotations});
            if kind == "Service" {
                for field in ["clusterIP", "clusterIPs"] {
                    object["spec"][field].take();
                }
            }
            if let Some(object) = object.as_object_mut() {
                object.remove("status");
                object.insert("kind".to_owned(), kind.into());
                object.insert("apiVersion".to_owned(), resource.api_version.clone().into());
            }
            found.push(Template {
                resource: resource.clone(),
                object,
            });
        }
    }
    if which == Which::OwnAndPods {
        // In the router's stead.
        let pod = found
            .iter()
            .find(|template| template.resource.kind == "Pod");
        let (resource, text) = pod
            .map(|pod| (pod.resource.clone(), pod.object.to_string()))
            .ok_or_else(|| anyhow::anyhow!("m0 has no pods"))?;
        let text = text.replace("\"m0-", "\"m0-router-");
        found.push(Template {
            resource,
            object: serde_json::from_str(&text)?,
        });
    }
    Ok(found)
}

/// Writes `deployments` more of what the operator made of `m0`; prints how long that takes.
pub(crate) async fn measure(bench: &Bench, deployments: usize, which: Which) -> Result<()> {
    let client = &bench.client;
    let api: Api<PdDeployment> = Api::namespaced(client.clone(), "default");
    // The first of a namespace has what they share written, too.
    let first = mk_named("first");
    api.create(&PostParams::default(), &first).await?;
    bench.comes_to_rest().await?;
    let before = bench.writes().await?;
    api.create(&PostParams::default(), &mk_deployment(0))
        .await?;
    bench.comes_to_rest().await?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "some twenty"
    )]
    let writes = (bench.writes().await? - before) as usize;
    bench.operator.signal(Signal::STOP)?;
    let templates = templates(client, which).await?;
    ensure!(templates.len() >= 4, "m0 has {} children", templates.len());
    // The user's own write is not the operator's.
    let patches = match which {
        Which::All => writes.saturating_sub(templates.len()),
        Which::OwnAndPods => 3,
    };
    println!(
        "bare client, {which:?}: {} objects and {patches} patches per deployment ({writes} writes of the operator)",
        templates.len() + 1
    );
    let status = serde_json::to_value(api.get("m0").await?.status)?;
    // Each one changes something, or nothing would be stored.
    let patch = |round: usize| {
        let mut status = status.clone();
        status["observedGeneration"] = (2 + round).into();
        Patch::Merge(json!({"status": status}))
    };
    let began = Instant::now();
    stream::iter(1..=deployments)
        .map(async |nr| {
            api.create(&PostParams::default(), &mk_deployment(nr))
                .await?;
            for template in &templates {
                let api: Api<DynamicObject> =
                    Api::default_namespaced_with(client.clone(), &template.resource);
                api.create(&PostParams::default(), &template.copy(nr)?)
                    .await?;
            }
            let name = format!("m{nr}");
            for round in 0..patches {
                api.patch_status(&name, &PatchParams::default(), &patch(round))
                    .await?;
            }
            anyhow::Ok(())
        })
        .buffer_unordered(CREATES_AT_ONCE)
        .try_collect::<Vec<_>>()
        .await?;
    println!(
        "written after                    {:.1} s",
        began.elapsed().as_secs_f64()
    );
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let all = 3 * (deployments + 2);
    until("pods", async || Ok(count(&pods).await? >= all)).await?;
    println!(
        "pods there after                 {:.1} s",
        began.elapsed().as_secs_f64()
    );
    Ok(())
}
