//! Facts about how targets are run.

use super::*;

const MEMORY: Memory = Memory {
    base: 1024,
    per_byte: 2,
};

#[test]
fn memory_within_the_bound_is_accepted() {
    run(MEMORY, &[7; 4096], |bytes| drop(bytes.to_vec()));
}

#[test]
fn memory_out_of_proportion_is_refused_though_it_was_freed() {
    let wasteful = |bytes: &[u8]| drop(vec![0_u8; 1024 + 3 * bytes.len()]);
    let ran = catch_unwind(|| run(MEMORY, &[7; 4096], wasteful));
    let message = ran.expect_err("it takes three bytes for each");
    let message = message.downcast::<String>().expect("a message");
    assert!(
        message.starts_with("an input of 4096 bytes took 13312"),
        "{message}"
    );
}

#[test]
fn panics_of_targets_pass_and_leave_the_counter_usable() {
    for _ in 0..100 {
        let ran = catch_unwind(|| run(MEMORY, b"x", |bytes| assert!(bytes.is_empty())));
        assert!(ran.is_err());
    }
    memory_within_the_bound_is_accepted();
}

#[test]
fn random_changes_repeat_with_their_seed_and_stay_short() {
    let known = [b"{\"a\": 1}".to_vec(), Vec::new(), vec![7; 8192]];
    let draw = |seed| {
        let mut draw = Draw(seed);
        (0..500).map(|_| draw.input(&known)).collect::<Vec<_>>()
    };
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(3));
    assert!(draw(1).iter().all(|input| input.len() <= 8192));
}

#[test]
fn inputs_near_one_are_the_same_each_time_and_few() {
    let bytes: Vec<u8> = (0..=255).collect();
    let near: Vec<Vec<u8>> = near::inputs(&bytes).collect();
    assert_eq!(near, near::inputs(&bytes).collect::<Vec<_>>());
    assert_eq!(near.len(), 96);
    assert_eq!(near::inputs(&[]).count(), 0);
    assert!(near::inputs(b"x").all(|input| input.len() <= 2));
}
