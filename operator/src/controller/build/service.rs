//! The Service in front of the routers: where clients go.

use super::access;
use super::component::Component;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use pd_crds::PdDeployment;
use pd_crds::router::RouterSpec;
use pd_crds::service::{RouterServiceSpec, ServiceType};

/// Builds the Service, named as the deployment. The admin port is not part of it.
pub(crate) fn build_service(deployment: &PdDeployment) -> Service {
    let RouterServiceSpec {
        kind,
        load_balancer_class,
        annotations,
        labels,
    } = &deployment.spec.router.service;
    let mut metadata = Component::Router.metadata(deployment, deployment.name_any());
    let own = metadata.labels.get_or_insert_default();
    own.extend(labels.clone());
    metadata.annotations = (!annotations.is_empty()).then(|| annotations.clone());
    // The apiserver's own default is left to it, so that objects of before stay as they are.
    let type_ = (*kind != ServiceType::ClusterIp).then(|| kind.as_str().to_owned());
    Service {
        metadata,
        spec: Some(ServiceSpec {
            type_,
            load_balancer_class: load_balancer_class.clone(),
            selector: Some(Component::Router.selector_labels(deployment)),
            ports: Some(vec![build_port(&deployment.spec.router)]),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

/// Where clients inside the cluster find the OpenAI API.
pub(crate) fn endpoint(deployment: &PdDeployment, namespace: &str) -> String {
    let name = deployment.name_any();
    let router = &deployment.spec.router;
    format!(
        "{}://{name}.{namespace}.svc:{}/v1",
        router.scheme(),
        router.port
    )
}

fn build_port(router: &RouterSpec) -> ServicePort {
    let name = access::port_name(router).to_owned();
    ServicePort {
        port: router.port,
        app_protocol: router.tls.as_ref().map(|_| name.clone()),
        // By number, so that routers of before, whose port has another name, serve on until those
        // that speak TLS are there; should their Secret be missing, that is for good.
        target_port: Some(match router.tls {
            Some(_) => IntOrString::Int(router.port),
            None => IntOrString::String(name.clone()),
        }),
        name: Some(name),
        ..ServicePort::default()
    }
}
