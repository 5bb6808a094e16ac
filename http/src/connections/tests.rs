//! Facts about who makes room for whom.

use super::*;
use std::net::Ipv4Addr;

fn from(last: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 0, last).into()
}

fn mk(connections: usize) -> Arc<Connections> {
    let limits = Limits {
        connections,
        ..Limits::default()
    };
    Connections::new(limits, crate::metrics::uncounted())
}

fn admitted(table: &Arc<Connections>, peer: u8) -> Arc<Connection> {
    match table.admit(from(peer)) {
        Room::For(connection) => connection,
        Room::Full(_) | Room::Swamped => panic!("there is room"),
    }
}

fn order(connection: &Connection) -> Order {
    connection.order(Waker::noop())
}

#[tokio::test(start_paused = true)]
async fn the_longest_waiting_of_the_address_with_the_most_makes_room() {
    let table = mk(4);
    let one = admitted(&table, 1);
    tokio::time::advance(Duration::from_millis(5)).await;
    let many = [(); 3].map(|()| admitted(&table, 2));
    assert!(
        matches!(table.admit(from(3)), Room::Full(_)),
        "all may be about to ask"
    );
    tokio::time::advance(GRACE + Duration::from_millis(5)).await;
    let newest = admitted(&table, 3);
    assert_eq!(
        many.each_ref().map(|it| order(it)),
        [Order::Close, Order::Serve, Order::Serve]
    );
    assert_eq!((order(&one), order(&newest)), (Order::Serve, Order::Serve));
    assert_eq!(table.metrics.number(Ended::Evicted), 1);
    assert_eq!(table.metrics.number(Ended::Full), 1);
}

#[tokio::test(start_paused = true)]
async fn where_all_are_served_one_more_is_refused_and_refusals_are_few() {
    let table = mk(2);
    let served = [(); 2].map(|()| admitted(&table, 1));
    served.iter().for_each(|it| it.serves());
    let mut refused: Vec<Refusal> = Vec::new();
    for _ in 0..REFUSALS {
        match table.admit(from(2)) {
            Room::Full(refusal) => refused.push(refusal),
            Room::For(_) | Room::Swamped => panic!("it is refused with a word"),
        }
    }
    assert!(matches!(table.admit(from(2)), Room::Swamped));
    assert_eq!(table.metrics.number(Ended::Swamped), 1);
    refused.pop();
    assert!(matches!(table.admit(from(2)), Room::Full(_)));
    served[0].awaits_request();
    tokio::time::advance(GRACE + Duration::from_millis(5)).await;
    let next = admitted(&table, 2);
    assert_eq!(order(&served[0]), Order::Close);
    assert_eq!(order(&next), Order::Serve);
}

/// TCP sends the packet again after 0.2, 0.4 and 0.8 s.
#[tokio::test(start_paused = true)]
async fn a_connection_whose_first_request_is_lost_three_times_is_not_ended_to_make_room() {
    let table = mk(1);
    let slow = admitted(&table, 1);
    tokio::time::advance(Duration::from_millis(200 + 400 + 800)).await;
    assert!(matches!(table.admit(from(2)), Room::Full(_)));
    assert_eq!(order(&slow), Order::Serve);
}

#[tokio::test(start_paused = true)]
async fn each_debt_has_its_deadline_and_a_served_request_has_none() {
    let table = mk(8);
    // No time at all is no time of the table's.
    tokio::time::advance(Duration::from_secs(1)).await;
    let Limits {
        idle, head, read, ..
    } = table.limits;
    let [silent, half, unread, served] = [(); 4].map(|()| admitted(&table, 1));
    half.received();
    for it in [&unread, &served] {
        it.received();
        it.serves();
    }
    unread.is_unread();
    let ended = async |after: Duration| {
        tokio::time::advance(after).await;
        table.sweep();
        [&silent, &half, &unread, &served].map(|it| order(it) == Order::Close)
    };
    let tick = Duration::from_millis(1);
    assert_eq!(ended(head).await, [false; 4]);
    assert_eq!(ended(tick).await, [false, true, false, false]);
    assert_eq!(ended(read - head).await, [false, true, true, false]);
    assert_eq!(ended(idle - read).await, [true, true, true, false]);
    assert_eq!(
        ended(Duration::from_secs(3600)).await,
        [true, true, true, false]
    );
    served.awaits_request();
    assert_eq!(ended(idle + tick).await, [true; 4]);
    assert_eq!(table.open.lock().len(), 0);
    let ends = [Ended::Idle, Ended::Head, Ended::Unread].map(|why| table.metrics.number(why));
    assert_eq!(ends, [2, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn failed_handshakes_are_reported_once_a_minute() {
    let table = mk(8);
    let stranger = admitted(&table, 1);
    let waiting = || {
        table.report_strangers();
        table.strangers.lock().count
    };
    assert_eq!(waiting(), 0);
    for rest in [0, 3, 6] {
        (0..3).for_each(|_| stranger.is_strange(&io::ErrorKind::InvalidData.into()));
        assert_eq!(waiting(), rest);
    }
    tokio::time::advance(STRANGERS_INTERVAL).await;
    assert_eq!(waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_on_is_not_late() {
    let table = mk(8);
    let slow = admitted(&table, 1);
    slow.serves();
    for _ in 0..10 {
        slow.is_unread();
        tokio::time::advance(table.limits.read).await;
        table.sweep();
        slow.was_read();
    }
    assert_eq!(order(&slow), Order::Serve);
}
