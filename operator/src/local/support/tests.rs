//! Facts about what is refused.

use super::*;
use k8s_openapi::api::core::v1::{Container, PodSpec};

fn mk_pod(edit: impl FnOnce(&mut PodSpec)) -> Pod {
    let mut spec = PodSpec {
        containers: vec![Container {
            name: "agent".to_owned(),
            ..Container::default()
        }],
        ..PodSpec::default()
    };
    edit(&mut spec);
    Pod {
        spec: Some(spec),
        ..Pod::default()
    }
}

fn refused(edit: impl FnOnce(&mut PodSpec)) -> String {
    check(&mk_pod(edit)).map_or_else(|errors| errors.to_string(), |()| String::new())
}

#[test]
fn fields_that_place_a_pod_are_refused_by_path() {
    let found = refused(|spec| {
        spec.node_selector = Some([("gpu".to_owned(), "h100".to_owned())].into());
        spec.host_network = Some(true);
        spec.containers[0].tty = Some(true);
    });
    insta::assert_snapshot!(found, @r"
    spec.containers[0].tty: is not carried out on this machine; remove it
    spec.hostNetwork: is not carried out on this machine; remove it
    spec.nodeSelector.gpu: is not carried out on this machine; remove it
    ");
}

#[test]
fn resources_are_refused() {
    let limits = json!({"limits": {"nvidia.com/gpu": "1"}});
    let found = refused(|spec| {
        spec.containers[0].resources = Some(serde_json::from_value(limits).unwrap());
    });
    assert!(
        found.starts_with("spec.containers[0].resources.limits[nvidia.com/gpu]: "),
        "{found}"
    );
}

#[test]
fn the_operators_own_confinement_passes_and_any_other_does_not() {
    let ours = crate::controller::build::pod::security_context();
    assert_eq!(
        refused(|spec| spec.containers[0].security_context = Some(ours.clone())),
        ""
    );
    let ours_of_pod = crate::controller::build::pod::pod_security_context();
    assert_eq!(
        refused(|spec| spec.security_context = Some(ours_of_pod.clone())),
        ""
    );
    let other_of_pod = k8s_openapi::api::core::v1::PodSecurityContext {
        fs_group: Some(1000),
        ..ours_of_pod
    };
    let found = refused(|spec| spec.security_context = Some(other_of_pod));
    assert!(found.contains("spec.securityContext.fsGroup"), "{found}");
    let other = k8s_openapi::api::core::v1::SecurityContext {
        run_as_user: Some(1000),
        ..ours.clone()
    };
    let found = refused(|spec| spec.containers[0].security_context = Some(other));
    assert!(
        found.contains("spec.containers[0].securityContext.runAsUser"),
        "{found}"
    );
}

#[test]
fn probes_other_than_an_http_get_are_refused() {
    let probe = json!({"exec": {"command": ["true"]}, "periodSeconds": 1});
    let found = refused(|spec| {
        spec.containers[0].readiness_probe = Some(serde_json::from_value(probe).unwrap());
    });
    assert!(
        found.starts_with("spec.containers[0].readinessProbe.exec.command[0]: "),
        "{found}"
    );
}
