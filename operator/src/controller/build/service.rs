//! The Service in front of the routers: where clients go.

use super::component::Component;
use super::pod::PORT_HTTP;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use pd_crds::PdDeployment;

/// Builds the Service, named as the deployment. The admin port is not part of it.
pub(crate) fn build_service(deployment: &PdDeployment) -> Service {
    Service {
        metadata: Component::Router.metadata(deployment, deployment.name_any()),
        spec: Some(ServiceSpec {
            selector: Some(Component::Router.selector_labels(deployment)),
            ports: Some(vec![ServicePort {
                name: Some(PORT_HTTP.to_owned()),
                port: deployment.spec.router.port,
                target_port: Some(IntOrString::String(PORT_HTTP.to_owned())),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}
