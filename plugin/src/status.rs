//! `kubectl pd status`: one screen about each deployment.

mod screen;

use crate::connection::Cluster;
use crate::metrics::{Figures, scrape};
use crate::view::View;
use anyhow::Result;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use pd_crds::PdDeployment;

/// Deployments that are read at the same time.
const SHOWN_MAX: usize = 8;

pub(crate) async fn one(cluster: &Cluster, name: &str) -> Result<String> {
    let deployment = cluster.deployment(name).await?;
    show(cluster, deployment).await
}

pub(crate) async fn all(cluster: &Cluster, of_all_namespaces: bool) -> Result<String> {
    let api: Api<PdDeployment> = if of_all_namespaces {
        Api::all(cluster.client.clone())
    } else {
        cluster.api()
    };
    let list = api.list(&ListParams::default()).await;
    let list = list.map_err(|error| cluster.failed::<PdDeployment>("list", "objects", &error))?;
    if list.items.is_empty() {
        let place = if of_all_namespaces {
            "any namespace".to_owned()
        } else {
            format!("namespace {}", cluster.namespace)
        };
        return Ok(format!("There is no PDDeployment in {place}.\n"));
    }
    let screens = list.items.into_iter().map(|deployment| async {
        let namespace = deployment.namespace().unwrap_or_default();
        show(&cluster.within(namespace), deployment).await
    });
    let screens = stream::iter(screens).buffered(SHOWN_MAX);
    let screens: Vec<String> = screens.try_collect().await?;
    Ok(screens.join("\n"))
}

async fn show(cluster: &Cluster, deployment: PdDeployment) -> Result<String> {
    let view = View::read(cluster, deployment).await?;
    let figures = Figures::of(&scrape(cluster, &view).await);
    Ok(screen::draw(&view, &figures, Timestamp::now()))
}

#[cfg(test)]
mod tests {
    //! Facts about what is asked of the apiserver.

    use super::*;
    use crate::fixture::apiserver::Apiserver;
    use crate::fixture::{settled, settled_view};
    use http::StatusCode;
    use pd_protocol::labels;
    use serde_json::json;

    #[tokio::test]
    async fn figures_come_through_the_proxy_of_the_pods() {
        let apiserver = Apiserver::default();
        let deployment = "/apis/pdserve.io/v1alpha1/namespaces/ml/pddeployments/tiny";
        apiserver.answers("GET", deployment, StatusCode::OK, settled());
        let pods = "/api/v1/namespaces/ml/pods";
        let mut workers = settled_view().pods;
        let served = workers
            .iter_mut()
            .filter(|pod| pod.name_any() == "tiny-prefill-0-0");
        for pod in served {
            let scheme = (labels::SCHEME.to_owned(), "https".to_owned());
            pod.annotations_mut().extend([scheme]);
        }
        let list = json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": workers});
        apiserver.answers("GET", pods, StatusCode::OK, list);
        let router = format!("{pods}/tiny-router-5d9f:8000/proxy/metrics");
        let text = json!("pd_router_in_flight 3\npd_router_queue_waiting 1\n");
        apiserver.answers("GET", &router, StatusCode::OK, text);
        let prefill = format!("{pods}/https:tiny-prefill-0-0:30000/proxy/metrics");
        let text = json!("pdserve_num_queue_reqs 42\n");
        apiserver.answers("GET", &prefill, StatusCode::OK, text);
        let screen = one(&apiserver.cluster(), "tiny").await.unwrap();
        let has = |text: &str| assert!(screen.contains(text), "{text} is not in\n{screen}");
        has("1 of 1 ready · 3 requests in flight · 1 waiting");
        has("tiny-prefill-0-0  node-a  aaaaaaaaaa  -          42 ");
        has(
            "No figures of tiny-decode-0-0 and 1 more: /api/v1/namespaces/ml/pods/tiny-decode-0-0:30000/proxy/metrics not found",
        );
    }

    #[tokio::test]
    async fn nothing_to_show_is_said() {
        let apiserver = Apiserver::default();
        let list = "/apis/pdserve.io/v1alpha1/namespaces/ml/pddeployments";
        let empty = json!({"apiVersion": "pdserve.io/v1alpha1", "kind": "PDDeploymentList",
            "metadata": {}, "items": []});
        apiserver.answers("GET", list, StatusCode::OK, empty);
        let printed = all(&apiserver.cluster(), false).await.unwrap();
        assert_eq!(printed, "There is no PDDeployment in namespace ml.\n");
    }
}
