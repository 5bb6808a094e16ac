//! The Service in front of the routers: where clients go.

use super::access;
use super::component::Component;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use pd_crds::PdDeployment;
use pd_crds::router::RouterSpec;

/// Builds the Service, named as the deployment. The admin port is not part of it.
pub(crate) fn build_service(deployment: &PdDeployment) -> Service {
    Service {
        metadata: Component::Router.metadata(deployment, deployment.name_any()),
        spec: Some(ServiceSpec {
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
