//! Facts about the registry and the fleets it makes.

use super::*;
use pd_identity::Peers;
use pd_protocol::Role;
use std::time::Duration;
use tokio::time::Instant;

fn registry() -> Registry {
    Registry::new(
        CircuitConfig {
            enabled: true,
            failures_to_open: 1,
            successes_to_close: 1,
            open_for: Duration::from_secs(60),
            window: Duration::from_secs(60),
        },
        Peers::Plain,
    )
}

fn spec(id: &str, role: Role) -> WorkerSpec {
    WorkerSpec {
        id: id.to_owned(),
        role,
        url: "http://127.3.0.1:30000".to_owned(),
        bootstrap_host: None,
        bootstrap_port: None,
        given_kv_compat: None,
    }
}

fn add(registry: &Registry, id: &str, role: Role, kv_compat: &str) -> Arc<Worker> {
    let Ok(Registered::New(worker)) = registry.register(spec(id, role)) else {
        panic!("{id} is new");
    };
    registry.set_ready(&worker, info(kv_compat, "boot-1"));
    worker
}

fn info(kv_compat: &str, boot_id: &str) -> WorkerInfo {
    WorkerInfo {
        models: vec!["m".to_owned()],
        kv_compat: Some(kv_compat.to_owned()),
        boot_id: Some(boot_id.to_owned()),
        ..WorkerInfo::default()
    }
}

#[test]
fn only_equal_kv_is_paired() {
    let registry = registry();
    add(&registry, "p", Role::Prefill, "x");
    add(&registry, "d", Role::Decode, "y");
    assert!(!registry.fleet().is_routable());
    add(&registry, "d2", Role::Decode, "x");
    assert!(registry.fleet().is_routable());
}

#[tokio::test(start_paused = true)]
async fn after_a_cordon_no_request_gets_a_place() {
    let registry = registry();
    let worker = add(&registry, "n", Role::Unified, "x");
    let held = worker.lease(5, Instant::now()).unwrap();
    let status = registry.set_cordoned("n", true).unwrap();
    assert_eq!((status.state, status.in_flight), (WorkerState::Cordoned, 1));
    assert!(worker.lease(5, Instant::now()).is_none());
    assert!(!registry.fleet().is_routable());
    drop(held);
    assert_eq!(worker.load(), crate::policy::Load::default());
    registry.set_cordoned("n", false).unwrap();
    assert!(worker.lease(5, Instant::now()).is_some());
}

#[test]
fn the_same_worker_twice_is_one_and_another_of_its_name_is_refused() {
    let registry = registry();
    add(&registry, "p", Role::Prefill, "x");
    let again = registry.register(spec("p", Role::Prefill));
    assert!(matches!(again, Ok(Registered::Known)));
    let other = registry.register(spec("p", Role::Decode));
    assert!(matches!(other, Err(RegistryError::Conflict { .. })));
}

#[test]
fn a_removed_worker_is_not_revived_by_a_late_probe() {
    let registry = registry();
    let worker = add(&registry, "p", Role::Prefill, "x");
    registry.remove("p").unwrap();
    let successor = add(&registry, "p", Role::Prefill, "x");
    registry.set_unready(&worker, "gone".to_owned());
    assert_eq!(registry.status("p").unwrap().state, WorkerState::Serving);
    assert!(!Arc::ptr_eq(&worker, &successor));
}

#[tokio::test(start_paused = true)]
async fn a_restarted_worker_has_a_closed_circuit() {
    let registry = registry();
    let worker = add(&registry, "p", Role::Prefill, "x");
    worker
        .lease(1, Instant::now())
        .unwrap()
        .fail(Instant::now());
    assert!(registry.status("p").unwrap().circuit_open);
    registry.set_ready(&worker, info("x", "boot-1"));
    assert!(registry.status("p").unwrap().circuit_open);
    registry.set_ready(&worker, info("x", "boot-2"));
    assert!(!registry.status("p").unwrap().circuit_open);
}

#[test]
fn an_id_that_no_header_can_carry_is_refused() {
    let refused = registry().register(spec("p\n", Role::Prefill));
    let Err(RegistryError::Invalid(InvalidWorker::Id(id))) = refused else {
        panic!("it is registered");
    };
    assert_eq!(id, "p\n");
}
