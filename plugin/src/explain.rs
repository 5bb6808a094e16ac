//! `kubectl pd explain`: what holds a deployment back now, in sentences.

mod blockers;

use crate::connection::{Cluster, message_of};
use crate::metrics::{Figures, scrape};
use crate::view::View;
use anyhow::Result;
use blockers::{blockers, nothing, slots};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use pd_crds::node_disposition::{NodeDisposition, node_disposition};
use std::collections::BTreeMap;

/// What becomes of each node.
type Dispositions = BTreeMap<String, NodeDisposition>;

pub(crate) async fn explain(cluster: &Cluster, name: &str) -> Result<String> {
    let deployment = cluster.deployment(name).await?;
    let view = View::read(cluster, deployment).await?;
    let nodes = Api::<Node>::all(cluster.client.clone());
    let nodes = nodes.list(&ListParams::default()).await;
    let (dispositions, unread) = match nodes {
        Ok(nodes) => {
            let dispositions = nodes
                .iter()
                .map(|node| (node.name_any(), node_disposition(node)));
            (dispositions.collect(), None)
        }
        Err(error) => (Dispositions::new(), Some(message_of(&error))),
    };
    let figures = Figures::of(&scrape(cluster, &view).await);
    let mut sentences = blockers(&view, &dispositions, Timestamp::now());
    sentences.extend(slots(&figures));
    if sentences.is_empty() {
        sentences.push(nothing(&view));
    }
    let unread = unread.map(|why| format!("Cordons could not be read: {why}"));
    sentences.extend(unread);
    Ok(sentences.join("\n") + "\n")
}
