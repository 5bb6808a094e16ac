//! Facts about who meets whom.

mod strangers;

use super::*;
use crate::certificates::{BACKDATE, LIFETIME};
use crate::{HandshakeError, Peers, Stream};
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

pub(crate) fn key(number: usize) -> String {
    format!("hush-{number:0>32}")
}

/// The keys of these numbers; the first signs.
pub(crate) fn mk_keyring<const N: usize>(numbers: [usize; N]) -> Keyring {
    let text = numbers.map(key).join("\n");
    Keyring::parse("keys", text.as_bytes()).expect("keys")
}

pub(crate) fn mk_identity<const N: usize>(numbers: [usize; N]) -> Identity {
    Identity::new(mk_keyring(numbers))
}

/// A clock that stands where it is set.
#[derive(Debug)]
struct Clock(AtomicU64);

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        let time = Duration::from_secs(self.0.load(Ordering::Relaxed));
        Some(UnixTime::since_unix_epoch(time))
    }
}

const NOW: u64 = 1_800_000_000;

fn mk_clocked(time: u64) -> (Identity, Arc<Clock>) {
    let clock = Arc::new(Clock(AtomicU64::new(time)));
    (Identity::with_clock(mk_keyring([1]), clock.clone()), clock)
}

type Connected = io::Result<Stream<DuplexStream>>;

/// What the server and the client have after both have sent a byte.
pub(crate) async fn exchange(
    accept: impl Future<Output = Connected>,
    connect: impl Future<Output = Connected>,
) -> (Connected, Connected) {
    let server = async {
        let mut stream = accept.await?;
        let byte = stream.read_u8().await?;
        stream.write_u8(byte).await?;
        stream.flush().await?;
        Ok(stream)
    };
    let client = async {
        let mut stream = connect.await?;
        stream.write_u8(7).await?;
        stream.flush().await?;
        match stream.read_u8().await? {
            7 => Ok(stream),
            other => Err(io::Error::other(format!("read {other}"))),
        }
    };
    tokio::join!(server, client)
}

pub(crate) async fn meet(server: &Identity, client: &Identity) -> (Connected, Connected) {
    let (ours, theirs) = duplex(1 << 16);
    let [server, client] = [server, client].map(|identity| Peers::Tls(identity.clone()));
    exchange(
        server.accept(ours, Clients::Required),
        client.connect(theirs),
    )
    .await
}

pub(crate) fn reason(connected: Connected) -> String {
    connected.expect_err("refused").to_string()
}

async fn do_meet(server: &Identity, client: &Identity) -> bool {
    let (served, connected) = meet(server, client).await;
    assert_eq!(served.is_ok(), connected.is_ok(), "both know");
    served.is_ok()
}

#[tokio::test]
async fn processes_of_one_key_meet_and_learn_who_the_other_is() {
    let (router, agent) = (mk_identity([1]), mk_identity([1]));
    for (server, client) in [(&agent, &router), (&router, &agent)] {
        let (served, connected) = meet(server, client).await;
        assert_eq!(served.unwrap().peer(), Some(client.peer_id()));
        assert_eq!(connected.unwrap().peer(), Some(server.peer_id()));
    }
    assert_ne!(router.peer_id(), agent.peer_id());
}

#[tokio::test]
async fn a_process_of_another_key_is_refused_on_either_side() {
    for (server, client) in [([1], [2]), ([2], [1])] {
        let (served, connected) = meet(&mk_identity(server), &mk_identity(client)).await;
        let reason = reason(connected);
        assert!(
            reason.starts_with("the peer's certificate is of no key of this deployment"),
            "{reason}"
        );
        let reason = self::reason(served);
        assert!(
            reason.starts_with("the peer refused this process's certificate"),
            "{reason}"
        );
    }
    // The client trusts the server, which finds that the client's first key is not its own.
    let (served, connected) = meet(&mk_identity([1]), &mk_identity([2, 1])).await;
    let reason = reason(served);
    assert!(
        reason.contains("is of no key of this deployment") && reason.contains("the key files"),
        "{reason}"
    );
    let error = connected.expect_err("refused");
    let within = error.get_ref().and_then(|within| within.downcast_ref());
    assert!(
        matches!(within, Some(HandshakeError::RefusedKey(_))),
        "{error}"
    );
}

#[tokio::test]
async fn a_rotation_refuses_no_connection_between_adjacent_states_and_ends_the_old_key() {
    let states = [
        mk_identity([1]),
        mk_identity([1, 2]),
        mk_identity([2, 1]),
        mk_identity([2]),
    ];
    for (at, server) in states.iter().enumerate() {
        for (other, client) in states.iter().enumerate() {
            let are_adjacent = at.abs_diff(other) <= 1;
            assert_eq!(
                do_meet(server, client).await,
                are_adjacent,
                "{at} and {other}"
            );
        }
    }
}

#[tokio::test]
async fn a_process_is_the_same_peer_after_a_renewal_and_with_other_keys() {
    let (server, clock) = mk_clocked(NOW);
    let (client, client_clock) = mk_clocked(NOW);
    let id = client.peer_id();
    let certificate = |stream: &Stream<DuplexStream>| {
        let Stream::Tls(tls) = stream else {
            panic!("a TLS stream");
        };
        tls.get_ref().1.peer_certificates().unwrap().to_vec()
    };
    let mut seen = Vec::new();
    for hours in [0, 7, 8, 30, 100] {
        clock.0.store(NOW + hours * 3600, Ordering::Relaxed);
        client_clock.0.store(NOW + hours * 3600, Ordering::Relaxed);
        let stream = meet(&server, &client).await.0.unwrap();
        assert_eq!(stream.peer(), Some(id));
        seen.push(certificate(&stream));
    }
    assert_eq!(seen[0], seen[1], "at seven hours it is as it was");
    seen.dedup();
    assert_eq!(seen.len(), 4, "it was renewed at eight hours and later");

    for identity in [&server, &client] {
        identity.replace(mk_keyring([2]));
    }
    assert_eq!(meet(&server, &client).await.0.unwrap().peer(), Some(id));
}

#[tokio::test]
async fn clocks_may_differ_by_an_hour() {
    let (server, clock) = mk_clocked(NOW);
    // Meets, so that its certificate is of this time.
    assert!(do_meet(&server, &mk_clocked(NOW).0).await);
    let (back, ahead) = (BACKDATE.as_secs(), LIFETIME.as_secs());
    for (client, meets) in [
        (NOW - back, true),
        (NOW - back - 1, false),
        (NOW + back, true),
        (NOW + back + 1, false),
    ] {
        assert_eq!(
            do_meet(&server, &mk_clocked(client).0).await,
            meets,
            "{client}"
        );
    }

    let (client, _) = mk_clocked(NOW + ahead + 1);
    let (served, connected) = meet(&server, &client).await;
    let reason = reason(connected);
    assert!(
        reason.contains("certificate expired") && reason.contains("check the clocks"),
        "{reason}"
    );
    let reason = self::reason(served);
    assert!(
        reason.contains("does not hold at this time") && reason.contains("check the clocks"),
        "{reason}"
    );
    let (_, connected) = meet(&client, &server).await;
    let reason = self::reason(connected);
    assert!(
        reason.contains("not valid yet") && reason.contains("check the clocks"),
        "{reason}"
    );

    clock.0.store(NOW - 7 * 24 * 3600, Ordering::Relaxed);
    let (client, _) = mk_clocked(NOW - 7 * 24 * 3600);
    assert!(
        do_meet(&server, &client).await,
        "a clock that was set back renews"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_may_change_while_processes_meet() {
    let (server, client) = (mk_identity([1, 2]), mk_identity([1, 2]));
    let changed = [server.clone(), client.clone()];
    let is_over = Arc::new(AtomicU64::new(0));
    let over = is_over.clone();
    let changing = tokio::spawn(async move {
        while over.load(Ordering::Relaxed) == 0 {
            for numbers in [[1, 2, 3], [2, 1, 3], [1, 3, 2]] {
                for identity in &changed {
                    identity.replace(mk_keyring(numbers));
                    tokio::task::yield_now().await;
                }
            }
        }
    });
    let meetings: Vec<_> = (0..4)
        .map(|_| {
            let (server, client) = (server.clone(), client.clone());
            tokio::spawn(async move {
                for _ in 0..25 {
                    let (served, connected) = meet(&server, &client).await;
                    assert_eq!(served.unwrap().peer(), Some(client.peer_id()));
                    assert_eq!(connected.unwrap().peer(), Some(server.peer_id()));
                }
            })
        })
        .collect();
    for meeting in meetings {
        meeting.await.unwrap();
    }
    is_over.store(1, Ordering::Relaxed);
    changing.await.unwrap();
}

#[tokio::test]
async fn a_connection_outlives_the_key_that_made_it() {
    let (server, client) = (mk_identity([1]), mk_identity([1]));
    let (served, connected) = meet(&server, &client).await;
    let (mut served, mut connected) = (served.unwrap(), connected.unwrap());
    server.replace(mk_keyring([2]));
    connected.write_u8(8).await.unwrap();
    connected.flush().await.unwrap();
    assert_eq!(served.read_u8().await.unwrap(), 8);
    assert!(!do_meet(&server, &client).await, "a new one is refused");
}

#[test]
fn an_identity_shows_ids_and_no_secret() {
    let identity = mk_identity([1]);
    let (key, _) = identity.key_ids()[0];
    let shown = format!("{:?}", Peers::Tls(identity.clone()));
    let expected = format!(
        "Tls(Identity {{ peer_id: {}, keys: [({key}, Signs)] }})",
        identity.peer_id()
    );
    assert_eq!(shown, expected);
}
