//! The cost of a row, from durations that are known.

use super::*;

/// Steps of one request with the drafts of `rows`, each row taking 1 ms and each step `fixed_ms`.
fn measured(fixed_ms: u64, rows: impl IntoIterator<Item = usize>) -> f64 {
    let mut cost = RowCost::default();
    for rows in rows {
        let duration = Duration::from_millis(fixed_ms + rows as u64);
        cost.observe(1, rows, duration);
    }
    cost.share()
}

#[test]
fn the_line_through_steps_of_two_sizes_gives_the_share() {
    let share = measured(9, [1, 4, 1, 4, 4, 1]);
    assert!((share - 0.1).abs() < 1e-9, "{share}");
    let bound_by_compute = measured(0, [1, 4, 2, 4]);
    assert!((bound_by_compute - 1.0).abs() < 1e-9, "{bound_by_compute}");
}

#[test]
fn the_time_to_draft_is_part_of_the_cost() {
    let mut cost = RowCost::default();
    cost.observe_drafts(4, Duration::from_millis(8));
    for rows in [1, 4, 1, 4] {
        cost.observe(1, rows, Duration::from_millis(9 + rows as u64));
    }
    assert!((cost.share() - 0.3).abs() < 1e-9, "{}", cost.share());
}

#[test]
fn steps_of_one_size_say_nothing_and_what_was_learnt_stays() {
    assert!((measured(9, [4; 50]) - FIRST_SHARE).abs() < 1e-9);
    let learnt = [1, 4, 1, 4].into_iter().chain([4; 2000]);
    let share = measured(9, learnt);
    assert!((share - 0.1).abs() < 1e-2, "{share}");
}

#[test]
fn steps_of_one_size_call_for_one_of_another_now_and_then() {
    let mut cost = RowCost::default();
    assert!(!cost.wants_step_of(1), "nothing is known");
    let bare = (0..200).filter(|_| {
        let bare = cost.wants_step_of(1);
        let rows = if bare { 1 } else { 2 };
        cost.observe(1, rows, Duration::from_millis(9 + rows as u64));
        bare
    });
    let bare = bare.count();
    assert!((3..=8).contains(&bare), "{bare}");
    assert!((cost.share() - 0.1).abs() < 1e-9, "{}", cost.share());
    (0..1000).for_each(|_| cost.observe(1, 1, Duration::from_millis(10)));
    assert!(!cost.wants_step_of(1), "those without drafts wait for none");
}

#[test]
fn what_is_slower_now_counts_more_than_what_was_fast() {
    let mut cost = RowCost::default();
    for (row_ms, turns) in [(1, 500), (9, 500)] {
        for turn in 0..turns {
            let rows = 1 + turn % 4;
            let duration = Duration::from_millis(10 + row_ms * rows);
            cost.observe(1, usize::try_from(rows).unwrap(), duration);
        }
    }
    assert!((cost.share() - 9.0 / 19.0).abs() < 0.02, "{}", cost.share());
}
