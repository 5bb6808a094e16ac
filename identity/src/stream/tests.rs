//! Facts about streams with and without a key.

use super::*;
use crate::identity::tests::mk_identity;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

async fn pair(peers: &Peers) -> (Stream<DuplexStream>, Stream<DuplexStream>) {
    let (ours, theirs) = duplex(1 << 16);
    let (served, connected) =
        tokio::join!(peers.accept(ours, Clients::Required), peers.connect(theirs));
    (served.expect("a server"), connected.expect("a client"))
}

#[tokio::test]
async fn the_same_code_moves_bytes_with_and_without_a_key() {
    for peers in [Peers::from(None), Peers::from(Some(mk_identity([1])))] {
        let (mut server, mut client) = pair(&peers).await;
        let identity = peers.identity();
        assert_eq!(server.peer(), identity.map(Identity::peer_id));
        assert!(client.is_write_vectored());

        let writing = async {
            let parts = ["head", "", &"body".repeat(50_000)];
            let mut slices = parts.map(|part| IoSlice::new(part.as_bytes()));
            let mut left = &mut slices[..];
            while !left.is_empty() {
                let written = client.write_vectored(left).await.unwrap();
                IoSlice::advance_slices(&mut left, written);
            }
            client.shutdown().await.unwrap();
            parts.concat()
        };
        let mut read = String::new();
        let (written, _) = tokio::join!(writing, server.read_to_string(&mut read));
        assert!(read == written);
    }
}

#[tokio::test]
async fn a_tls_connection_that_is_cut_off_is_an_error_and_no_end() {
    let (mut server, client) = pair(&Peers::Tls(mk_identity([1]))).await;
    drop(client);
    let error = server.read(&mut [0]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn the_connection_below_can_be_asked() {
    for peers in [Peers::Plain, Peers::Tls(mk_identity([1]))] {
        let (server, _client) = pair(&peers).await;
        let _: &DuplexStream = server.get_ref();
    }
}
