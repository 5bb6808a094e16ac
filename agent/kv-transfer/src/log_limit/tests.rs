//! Facts about what is logged.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_flood_is_some_lines_and_a_number() {
    let limit = LogLimit::default();
    let lines = (0..1000).filter_map(|_| limit.allows()).count();
    assert_eq!(lines, LINES_MAX as usize);
    tokio::time::advance(STRETCH).await;
    assert_eq!(limit.allows(), Some(1000 - u64::from(LINES_MAX)));
    assert_eq!(limit.allows(), Some(0));
}
