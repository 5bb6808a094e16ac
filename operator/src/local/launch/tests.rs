//! Facts about the way from a Pod to a process.

use super::*;
use serde_json::{Value, json};

fn mk_surroundings() -> LaunchEnvironment {
    let own = std::env::current_exe().expect("a test knows its own path");
    let folder = own
        .parent()
        .expect("a test lies in a folder")
        .join("launch-programs");
    std::fs::create_dir_all(&folder).expect("the target folder is writable");
    std::fs::write(folder.join("pd-agent"), "").expect("the target folder is writable");
    LaunchEnvironment {
        address: "127.3.4.5".parse().expect("an address"),
        programs: folder,
        secrets: [(
            ("tiny-admin".to_owned(), "token".to_owned()),
            "s3cret".to_owned(),
        )]
        .into(),
    }
}

fn mk_pod(edit: impl FnOnce(&mut Value)) -> Pod {
    let mut container = json!({
        "name": "agent",
        "command": ["pd-agent"],
        "args": ["--host", "$(POD_IP)", "--name", "$$(POD_IP) costs $5 $(UNSET)"],
        "env": [
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "tiny-admin", "key": "token"}}},
            {"name": "BASE", "value": "http://$(POD_IP)/"},
        ],
        "ports": [{"name": "http", "containerPort": 30000}],
        "volumeMounts": [{"name": "model", "mountPath": "/models/m.gguf", "readOnly": true}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}, "failureThreshold": 4},
    });
    edit(&mut container);
    serde_json::from_value(json!({
        "metadata": {"name": "tiny-prefill-0-1"},
        "spec": {
            "containers": [container],
            "terminationGracePeriodSeconds": 7,
            "volumes": [{"name": "model", "hostPath": {"path": "/models/m.gguf"}}],
        },
    }))
    .expect("a Pod")
}

fn refused(edit: impl FnOnce(&mut Value)) -> String {
    launch(&mk_pod(edit), &mk_surroundings())
        .expect_err("refused")
        .to_string()
}

#[test]
fn a_pod_becomes_a_command_line_with_its_environment() {
    let launch = launch(&mk_pod(|_| {}), &mk_surroundings()).unwrap();
    assert!(launch.program.ends_with("launch-programs/pd-agent"));
    assert_eq!(
        launch.args,
        [
            "--host",
            "127.3.4.5",
            "--name",
            "$(POD_IP) costs $5 $(UNSET)"
        ]
    );
    assert_eq!(launch.env["TOKEN"], "s3cret");
    assert_eq!(launch.env["BASE"], "http://127.3.4.5/");
    assert_eq!(launch.grace, Duration::from_secs(7));
    let readiness = launch.probes.readiness.unwrap();
    assert_eq!(
        readiness.target.to_string(),
        "http://127.3.4.5:30000/health"
    );
    assert_eq!(readiness.failures, 4);
}

#[test]
fn a_probe_of_an_unknown_port_is_refused() {
    let found = refused(|container| container["readinessProbe"]["httpGet"]["port"] = json!("web"));
    assert_eq!(
        found,
        "spec.containers[0].readinessProbe.httpGet.port: is neither a port nor the name of one"
    );
}

#[test]
fn a_volume_that_lies_elsewhere_is_refused() {
    let found = refused(|container| container["volumeMounts"][0]["mountPath"] = json!("/model"));
    assert!(
        found.starts_with("spec.containers[0].volumeMounts[0].mountPath: "),
        "{found}"
    );
}

#[test]
fn a_program_that_is_not_installed_is_refused() {
    for name in ["no-such-engine", "/opt/no-such-engine"] {
        let found = refused(|container| container["command"] = json!([name, "-m", "sglang"]));
        assert_eq!(
            found,
            format!(
                "spec.containers[0].command: {name} is not on the PATH; install it, or give its path in \
                 spec.engine.command"
            )
        );
    }
}

#[test]
fn another_engines_program_is_found_and_begins_with_the_words_of_its_command() {
    let pod = mk_pod(|container| {
        container["command"] = json!(["sh", "-c", "engine"]);
        container["livenessProbe"] = json!({"tcpSocket": {"port": "http"}});
    });
    let launch = launch(&pod, &mk_surroundings()).unwrap();
    assert!(launch.program.ends_with("sh"), "{:?}", launch.program);
    assert_eq!(launch.args[..2], ["-c", "engine"]);
    let liveness = launch.probes.liveness.unwrap();
    assert_eq!(liveness.target.to_string(), "127.3.4.5:30000");
}

#[test]
fn a_program_that_was_not_built_is_named_with_the_command_that_builds_it() {
    let found = refused(|container| container["command"] = json!(["pd-router"]));
    assert!(found.contains("pd-router is missing; build it with `cargo build -p pd-router`"));
}

#[test]
fn a_secret_that_only_a_cluster_has_is_refused() {
    let found = refused(|container| {
        container["env"][1]["valueFrom"]["secretKeyRef"]["name"] = json!("other");
    });
    assert!(found.starts_with("spec.containers[0].env[1].valueFrom: there are no Secrets"));
}

#[test]
fn an_address_that_listens_everywhere_is_dialled_by_loopback() {
    assert_eq!(
        dialable("0.0.0.0".parse().unwrap()),
        "127.0.0.1".parse::<IpAddr>().unwrap()
    );
    assert_eq!(
        dialable("127.1.2.3".parse().unwrap()),
        "127.1.2.3".parse::<IpAddr>().unwrap()
    );
}
