//! Facts about the choice of workers.

use super::*;
use crate::policy::PolicyName;
use crate::workers::circuit::CircuitConfig;
use crate::workers::info::WorkerInfo;
use crate::workers::{Registry, registry::Registered};
use pd_identity::{Identity, Keyring, Peers};
use pd_protocol::workers::WorkerSpec;
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::time::Duration;

struct Pools {
    registry: Registry,
    chooser: Chooser,
    rng: StdRng,
}

impl Pools {
    fn new(policy: PolicyName) -> Self {
        Self::among(Peers::Plain, policy)
    }

    fn among(peers: Peers, policy: PolicyName) -> Self {
        Self {
            registry: Registry::new(
                CircuitConfig {
                    enabled: true,
                    failures_to_open: 1,
                    successes_to_close: 1,
                    open_for: Duration::from_secs(60),
                    window: Duration::from_secs(60),
                },
                peers,
            ),
            chooser: Chooser::new(Policies {
                prefill: policy,
                decode: policy,
                unified: policy,
            }),
            rng: StdRng::seed_from_u64(1),
        }
    }

    fn add(&self, id: &str, role: Role, kv_compat: &str) -> Arc<Worker> {
        self.add_at("http://127.3.0.1:30000", id, role, kv_compat)
    }

    fn add_at(&self, url: &str, id: &str, role: Role, kv_compat: &str) -> Arc<Worker> {
        let spec = WorkerSpec {
            id: id.to_owned(),
            role,
            url: url.to_owned(),
            bootstrap_host: None,
            bootstrap_port: None,
            given_kv_compat: None,
        };
        let Ok(Registered::New(worker)) = self.registry.register(spec) else {
            panic!("{id} is new");
        };
        let info = WorkerInfo {
            models: vec!["m".to_owned()],
            kv_compat: Some(kv_compat.to_owned()),
            ..WorkerInfo::default()
        };
        self.registry.set_ready(&worker, info);
        worker
    }

    fn choose(&mut self, model: Option<&str>, excluded: &[Arc<Worker>]) -> Result<Route, NoRoute> {
        let demand = Demand {
            model,
            prompt_tokens: 100,
            output_tokens: 10,
            excluded,
            now: Instant::now(),
        };
        let fleet = self.registry.fleet();
        self.chooser.choose(&fleet, &demand, &mut self.rng)
    }

    fn pair(&mut self, excluded: &[Arc<Worker>]) -> PrefillDecodePair {
        match self.choose(None, excluded) {
            Ok(Route::Pair(pair)) => pair,
            other => panic!("no pair: {other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn load_is_counted_from_the_choice_on() {
    let mut pools = Pools::new(PolicyName::LeastLoaded);
    pools.add("p1", Role::Prefill, "x");
    pools.add("p2", Role::Prefill, "x");
    let decode = pools.add("d", Role::Decode, "x");
    let first = pools.pair(&[]);
    let second = pools.pair(&[]);
    assert_ne!(first.prefill.worker().id(), second.prefill.worker().id());
    assert_eq!(decode.load().tokens, 220);
    drop((first, second));
    assert_eq!(decode.load().tokens, 0);
}

#[tokio::test(start_paused = true)]
async fn a_retry_goes_elsewhere_while_there_is_an_elsewhere() {
    let mut pools = Pools::new(PolicyName::Random);
    let failed = pools.add("p1", Role::Prefill, "x");
    pools.add("p2", Role::Prefill, "x");
    let only = pools.add("d", Role::Decode, "x");
    let excluded = [failed, only];
    for _ in 0..20 {
        let pair = pools.pair(&excluded);
        assert_eq!(pair.prefill.worker().id(), "p2");
        assert_eq!(pair.decode.worker().id(), "d");
    }
}

#[tokio::test(start_paused = true)]
async fn two_revisions_side_by_side_are_never_mixed() {
    let mut pools = Pools::new(PolicyName::RoundRobin);
    for (revision, kv_compat) in [("a", "x"), ("b", "y")] {
        pools.add(&format!("p-{revision}"), Role::Prefill, kv_compat);
        pools.add(&format!("d-{revision}"), Role::Decode, kv_compat);
    }
    for _ in 0..8 {
        let pair = pools.pair(&[]);
        let (prefill, decode) = (pair.prefill.worker().id(), pair.decode.worker().id());
        assert_eq!(prefill.as_bytes()[2], decode.as_bytes()[2]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_whose_decodes_rest_is_passed_over() {
    let mut pools = Pools::new(PolicyName::RoundRobin);
    pools.add("p-a", Role::Prefill, "x");
    let resting = pools.add("d-a", Role::Decode, "x");
    pools.add("p-b", Role::Prefill, "y");
    pools.add("d-b", Role::Decode, "y");
    resting
        .lease(1, Instant::now())
        .unwrap()
        .fail(Instant::now());
    for _ in 0..4 {
        assert_eq!(pools.pair(&[]).prefill.worker().id(), "p-b");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_is_said() {
    let mut pools = Pools::new(PolicyName::Random);
    let reason = |pools: &mut Pools| pools.choose(None, &[]).unwrap_err().to_string();
    assert!(reason(&mut pools).contains("no worker is ready"));
    pools.add("p", Role::Prefill, "x");
    assert!(reason(&mut pools).contains("no decode worker is ready"));
    let decode = pools.add("d", Role::Decode, "y");
    assert!(reason(&mut pools).contains("differ in model or KV layout"));
    pools.registry.remove("d").unwrap();
    drop(decode);
    let decode = pools.add("d", Role::Decode, "x");
    decode
        .lease(1, Instant::now())
        .unwrap()
        .fail(Instant::now());
    assert!(reason(&mut pools).contains("rests after failures"));
}

#[tokio::test(start_paused = true)]
async fn an_unknown_model_is_answered_with_the_known_ones() {
    let mut pools = Pools::new(PolicyName::Random);
    pools.add("n", Role::Unified, "x");
    assert!(matches!(
        pools.choose(Some("m"), &[]),
        Ok(Route::Unified(_))
    ));
    let refused = pools.choose(Some("gpt"), &[]).unwrap_err();
    assert!(refused.to_string().contains("served are: m"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_could_not_be_reached_is_the_last_choice_until_a_probe_succeeds() {
    let mut pools = Pools::new(PolicyName::RoundRobin);
    pools.registry = Registry::new(
        CircuitConfig {
            enabled: true,
            failures_to_open: 100,
            successes_to_close: 1,
            open_for: Duration::from_secs(60),
            window: Duration::from_secs(60),
        },
        Peers::Plain,
    );
    pools.add("p", Role::Prefill, "x");
    let lost = pools.add("d1", Role::Decode, "x");
    let kept = pools.add("d2", Role::Decode, "x");
    let chosen = |pools: &mut Pools| pools.pair(&[]).decode.worker().id().to_owned();
    let lease = lost.lease(1, Instant::now()).expect("admitted");
    lease.fail_unreached(Instant::now());
    for _ in 0..8 {
        assert_eq!(chosen(&mut pools), "d2");
    }
    let lease = kept.lease(1, Instant::now()).expect("admitted");
    lease.fail_unreached(Instant::now());
    let both: std::collections::BTreeSet<String> = (0..8).map(|_| chosen(&mut pools)).collect();
    assert_eq!(both.len(), 2, "with all under suspicion none is left out");
    lost.clear_suspicion();
    for _ in 0..8 {
        assert_eq!(chosen(&mut pools), "d1");
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_whose_workers_are_unready_is_known_until_they_are_gone() {
    let mut pools = Pools::new(PolicyName::Random);
    let away = pools.add("n", Role::Unified, "x");
    let other = pools.add("o", Role::Unified, "x");
    let info = WorkerInfo {
        models: vec!["other".to_owned()],
        ..WorkerInfo::default()
    };
    pools.registry.set_ready(&other, info);
    pools.registry.set_unready(&away, "gone".to_owned());
    let refused = pools.choose(Some("m"), &[]).unwrap_err();
    assert!(matches!(refused, NoRoute::NoWorker(_)), "{refused}");
    pools.registry.remove("n").unwrap();
    let refused = pools.choose(Some("m"), &[]).unwrap_err();
    assert!(matches!(refused, NoRoute::UnknownModel { .. }), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn default_is_the_only_model_there_is() {
    let mut pools = Pools::new(PolicyName::Random);
    pools.add("n", Role::Unified, "x");
    let second = pools.add("o", Role::Unified, "x");
    let default = Some("default");
    assert!(pools.choose(default, &[]).is_ok());
    let serves = |name: &str| WorkerInfo {
        models: vec![name.to_owned()],
        ..WorkerInfo::default()
    };
    pools.registry.set_ready(&second, serves("other"));
    let refused = pools.choose(default, &[]).unwrap_err();
    assert!(matches!(refused, NoRoute::UnknownModel { .. }), "{refused}");
    pools.registry.set_ready(&second, serves("default"));
    let Ok(Route::Unified(lease)) = pools.choose(default, &[]) else {
        panic!("a model has that name");
    };
    assert_eq!(lease.worker().id(), "o");
}

#[test]
fn a_worker_with_a_key_is_paired_with_none_that_has_none() {
    let keyring = Keyring::parse("keys", b"0123456789abcdef0123456789abcdef").unwrap();
    let peers = Peers::Tls(Identity::new(keyring));
    let mut pools = Pools::among(peers, PolicyName::RoundRobin);
    pools.add_at("https://127.3.0.1:30000", "keyed", Role::Prefill, "a");
    pools.add_at("http://127.3.0.2:30000", "plain", Role::Decode, "a");
    assert!(pools.choose(None, &[]).is_err());
    pools.add_at("https://127.3.0.3:30000", "late", Role::Decode, "a");
    for _ in 0..4 {
        assert_eq!(pools.pair(&[]).decode.worker().id(), "late");
    }
}
