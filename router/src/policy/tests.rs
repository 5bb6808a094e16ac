//! Facts about policies.

use super::*;
use proptest::prelude::*;

fn load(tokens: u64) -> Load {
    Load {
        tokens,
        requests: 1,
    }
}

#[test]
fn an_empty_pool_has_no_worker() {
    assert_eq!(Policy::new(PolicyName::Random).pick(&[], 7), None);
}

#[test]
fn round_robin_takes_turns() {
    let policy = Policy::new(PolicyName::RoundRobin);
    let turns: Vec<_> = (0..5).map(|_| policy.pick(&[load(9); 3], 0)).collect();
    assert_eq!(turns, [0, 1, 2, 0, 1].map(Some));
}

#[test]
fn an_idle_pool_is_served_by_all_its_workers() {
    let policy = Policy::new(PolicyName::LeastLoaded);
    let mut served = [0u32; 4];
    for step in 0..64u64 {
        served[policy.pick(&[load(0); 4], step << 58).unwrap()] += 1;
    }
    assert_eq!(served, [16; 4]);
}

proptest! {
    #[test]
    fn least_loaded_is_least(tokens in prop::collection::vec(0u64..5, 1..9), draw: u64) {
        let loads: Vec<_> = tokens.iter().copied().map(load).collect();
        let picked = Policy::new(PolicyName::LeastLoaded).pick(&loads, draw).unwrap();
        prop_assert_eq!(tokens[picked], *tokens.iter().min().unwrap());
    }

    #[test]
    fn power_of_two_never_takes_the_single_worst(len in 2usize..9, worst in 0usize..9, draw: u64) {
        let worst = worst % len;
        let loads: Vec<_> = (0..len).map(|idx| load(u64::from(idx == worst))).collect();
        let picked = Policy::new(PolicyName::PowerOfTwo).pick(&loads, draw).unwrap();
        prop_assert_ne!(picked, worst);
    }

    #[test]
    fn a_pick_is_an_index(len in 1usize..9, draw: u64) {
        for name in [PolicyName::Random, PolicyName::PowerOfTwo, PolicyName::RoundRobin] {
            let picked = Policy::new(name).pick(&vec![load(1); len], draw).unwrap();
            prop_assert!(picked < len);
        }
    }
}
