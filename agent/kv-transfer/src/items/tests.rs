//! Facts about what a side may name.

use super::*;
use crate::tests::fixture::mk_layout;
use pd_protocol::layout::StateType;

#[test]
fn a_row_and_a_page_must_be_there() {
    let layout = mk_layout();
    assert_eq!(check_pages(&layout, &[0, layout.pages - 1]), Ok(()));
    assert_eq!(
        check_pages(&layout, &[layout.pages]),
        Err("page 64 where there are 64".to_owned())
    );
    assert_eq!(
        check_row(&layout, layout.metadata_rows),
        Err("metadata row 8 where there are 8".to_owned())
    );
}

#[test]
fn each_type_of_state_has_its_own_number_of_items() {
    let mut layout = mk_layout();
    layout.states.truncate(1);
    let mut check = |state_type, items: &[u32]| {
        layout.states[0].state_type = state_type;
        check_states(&layout, &[items.to_vec()], 2)
    };
    assert_eq!(check(StateType::Mamba, &[1]), Ok(()));
    assert_eq!(
        check(StateType::Mamba, &[0, 1]),
        Err("2 items of state recurrent for a request of 2 pages".to_owned())
    );
    assert_eq!(check(StateType::Nsa, &[0, 1]), Ok(()));
    assert!(check(StateType::Nsa, &[0]).is_err());
    assert_eq!(check(StateType::Swa, &[0]), Ok(()), "a window");
    assert_eq!(
        check(StateType::Swa, &[9]),
        Err("item 9 of state recurrent where there are 4".to_owned())
    );
}

#[test]
fn a_state_that_one_side_forgets_is_reported() {
    let layout = mk_layout();
    assert_eq!(
        check_states(&layout, &[], 1),
        Err("0 lists of items where there are 2 states".to_owned())
    );
    assert_eq!(
        check_equal(&layout, &[vec![1], vec![1, 2]], &[vec![1], vec![3]]),
        Err(
            "2 items of state window where decode has 1; do both sides see the same prompt?"
                .to_owned()
        )
    );
}
