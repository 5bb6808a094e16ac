//! Workers that share their node's network: each has a block of ports of its own.

use super::args::Args;
use super::engines::Meeting;
use super::fetch;
use super::pod::{PORT_ADMIN, PORT_BOOTSTRAP, PORT_HTTP};
use super::pool::agent_container;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use pd_protocol::labels;
use pd_protocol::ports::WorkerPorts;

/// Writes a worker's ports, where they are not the well-known ones, wherever its pod names them.
pub(super) fn take_ports(pod: &mut Pod, ports: WorkerPorts, meeting: Meeting) {
    if ports == WorkerPorts::WELL_KNOWN {
        return;
    }
    let annotations = pod.annotations_mut();
    annotations.insert(labels::FIRST_PORT.to_owned(), ports.http.to_string());
    if let Some(bootstrap) = annotations.get_mut(labels::BOOTSTRAP_PORT) {
        *bootstrap = ports.bootstrap.to_string();
    }
    fetch::take_port(pod, ports.http);
    let Some(agent) = agent_container(pod) else {
        return;
    };
    if let Meeting::SideChannel { variable, .. } = meeting {
        let mut env = agent.env.iter_mut().flatten();
        if let Some(port) = env.find(|env| env.name == variable) {
            port.value = Some(ports.bootstrap.to_string());
        }
    }
    let mut args = Args(agent.args.take().unwrap_or_default());
    for named in agent.ports.iter_mut().flatten() {
        let (flag, port) = match named.name.as_deref() {
            Some(PORT_HTTP) => ("port", ports.http),
            Some(PORT_ADMIN) => ("admin-port", ports.admin),
            Some(PORT_BOOTSTRAP) => ("disaggregation-bootstrap-port", ports.bootstrap),
            _ => continue,
        };
        named.container_port = i32::from(port);
        args.set(flag, port.to_string());
    }
    agent.args = Some(args.0);
}
