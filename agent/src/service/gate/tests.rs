//! Facts about the gate.

use super::*;
use futures_util::FutureExt;

#[tokio::test]
async fn it_closes_behind_those_who_went_through_and_lets_the_rest_wait() {
    let gate = Gate::new(2);
    let first = gate.pass().await.unwrap();
    assert!(!gate.is_closed());
    let mut closing = std::pin::pin!(gate.close());
    assert!((&mut closing).now_or_never().is_none());
    assert!(gate.is_closed());
    let mut second = Box::pin(gate.pass());
    assert!((&mut second).now_or_never().is_none());
    let mut third = Box::pin(gate.pass());
    assert!((&mut third).now_or_never().is_none());
    assert_eq!(gate.waiting(), 2);
    let refused = gate.pass().await.unwrap_err();
    assert_eq!(refused.status, http::StatusCode::SERVICE_UNAVAILABLE);
    assert!(
        refused.message.contains("2 requests wait"),
        "{}",
        refused.message
    );
    drop(third);
    assert_eq!(gate.waiting(), 1);

    drop(first);
    let closed = closing.await;
    assert!((&mut second).now_or_never().is_none());
    drop(closed);
    let _second = second.await.unwrap();
    assert_eq!(gate.waiting(), 0);
    assert!(!gate.is_closed());
}
