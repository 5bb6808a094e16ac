//! Workers of engines that have no admin API.

use super::*;

#[test]
fn a_worker_without_an_admin_api_ends_when_routers_have_nothing_on_it() {
    let mut observed = mk_settled();
    observed.pods[2].leaving = Some(Leaving {
        by_routers: true,
        ..Leaving::default()
    });
    let pod = || "decode-0-1".to_owned();
    let worker = |observed: &mut Observed, state, in_flight| {
        let workers = observed.routers[0].workers.as_mut().unwrap();
        workers[1].state = state;
        workers[1].in_flight = in_flight;
    };
    let cordon = Action::Cordon {
        router: "router-0-1".to_owned(),
        pod: pod(),
    };
    worker(&mut observed, WorkerState::Serving, 0);
    assert_eq!(plan(&[], &observed), vec![cordon]);
    worker(&mut observed, WorkerState::Cordoned, 3);
    assert_eq!(plan(&[], &observed), vec![]);
    worker(&mut observed, WorkerState::Cordoned, 0);
    assert_eq!(plan(&[], &observed), vec![Action::Terminate { pod: pod() }]);
    // A router that is silent may still have a stream there.
    let mut silent = observed.clone();
    silent.routers[0].workers = None;
    assert_eq!(plan(&[], &silent), vec![]);
    if let Some(leaving) = &mut silent.pods[2].leaving {
        leaving.past_deadline = true;
    }
    assert_eq!(plan(&[], &silent), vec![Action::Terminate { pod: pod() }]);
}
