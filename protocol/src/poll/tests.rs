//! Facts about transfer states.

use super::*;
use proptest::prelude::*;

fn any_poll() -> impl Strategy<Value = KvPoll> {
    (0u8..=4).prop_map(|n| KvPoll::try_from(n).unwrap())
}

#[test]
fn one_failed_rank_fails_the_request() {
    assert_eq!(
        KvPoll::consensus([KvPoll::Success, KvPoll::Failed]),
        KvPoll::Failed
    );
}

#[test]
fn an_unknown_number_is_refused() {
    assert_eq!(KvPoll::try_from(5), Err(UnknownKvPoll(5)));
}

proptest! {
    #[test]
    fn a_terminal_state_never_changes(reports in prop::collection::vec(any_poll(), 0..12)) {
        let mut state = KvPoll::Bootstrapping;
        let mut latched = None;
        for report in reports {
            let next = state.advance(report);
            prop_assert!(next == KvPoll::Failed || next >= state);
            if let Some(latched) = latched {
                prop_assert_eq!(next, latched);
            }
            latched = latched.or(next.is_terminal().then_some(next));
            state = next;
        }
    }
}
