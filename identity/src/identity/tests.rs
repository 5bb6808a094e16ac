//! Facts about who meets whom.

use super::*;
use crate::{Peers, Stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

pub(crate) fn key(number: usize) -> String {
    format!("hush-{number:0>32}")
}

/// The keys of these numbers; the first signs.
pub(crate) fn mk_keyring<const N: usize>(numbers: [usize; N]) -> Keyring {
    Keyring::parse("keys", numbers.map(key).join("\n").as_bytes()).expect("keys")
}

pub(crate) fn mk_identity<const N: usize>(numbers: [usize; N]) -> Identity {
    Identity::new(mk_keyring(numbers))
}

/// What the server and the client have after a handshake and a byte each way.
pub(crate) type Met = (
    io::Result<Stream<DuplexStream>>,
    io::Result<Stream<DuplexStream>>,
);

pub(crate) async fn meet(server: &Identity, client: &Identity, clients: Clients) -> Met {
    let (ours, theirs) = duplex(1 << 16);
    let (server, client) = (Peers::Tls(server.clone()), Peers::Tls(client.clone()));
    let serving = async {
        let mut stream = server.accept(ours, clients).await?;
        let byte = stream.read_u8().await?;
        stream.write_u8(byte).await?;
        stream.flush().await?;
        Ok(stream)
    };
    let asking = async {
        let mut stream = client.connect(theirs).await?;
        stream.write_u8(7).await?;
        stream.flush().await?;
        assert_eq!(stream.read_u8().await?, 7);
        Ok(stream)
    };
    tokio::join!(serving, asking)
}

#[tokio::test]
async fn processes_of_one_key_meet_and_learn_who_the_other_is() {
    let (router, agent) = (mk_identity([1]), mk_identity([1]));
    for clients in [Clients::Required, Clients::Optional] {
        let (served, connected) = meet(&agent, &router, clients).await;
        assert_eq!(served.unwrap().peer(), Some(router.peer_id()));
        assert_eq!(connected.unwrap().peer(), Some(agent.peer_id()));
    }
    assert_ne!(router.peer_id(), agent.peer_id());
}
