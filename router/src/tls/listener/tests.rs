//! Facts about handshakes.

use super::*;
use crate::tls::tests::write_pair;
use crate::vitals::Vitals;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

/// A server that says a word to each connection that it is given, and closes it.
struct Greeter {
    addr: SocketAddr,
    connector: TlsConnector,
    server: JoinHandle<()>,
    _files: TempDir,
}

impl Greeter {
    async fn start(handshakes_max: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let files = write_pair(folder.path());
        let root = CertificateDer::from_pem_file(&files.cert).unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = tcp.local_addr().unwrap();
        let metrics = Arc::<Metrics>::default();
        let config = Reloaded::open(files, &metrics, &Vitals::default()).unwrap();
        let mut listener = TlsListener::new(tcp, config, metrics);
        listener.handshakes_max = handshakes_max;
        let server = tokio::spawn(async move {
            loop {
                let (mut tls, _) = Listener::accept(&mut listener).await;
                tls.write_all(b"hello").await.unwrap();
                tls.shutdown().await.unwrap();
            }
        });
        Self {
            addr,
            connector: mk_connector(root),
            server,
            _files: folder,
        }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.addr).await.unwrap()
    }

    async fn greeting(&self, tcp: TcpStream) -> String {
        let name = ServerName::try_from("router").unwrap();
        let mut tls = self.connector.connect(name, tcp).await.unwrap();
        let mut text = String::new();
        tls.read_to_string(&mut text).await.unwrap();
        text
    }
}

impl Drop for Greeter {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn mk_connector(root: CertificateDer<'static>) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(root).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

/// Waits until the server ends the connection, orderly or not, and says how long that took.
async fn ended(mut tcp: TcpStream) -> Duration {
    let began = Instant::now();
    let _ = tcp.read_to_end(&mut Vec::new()).await;
    began.elapsed()
}

#[tokio::test]
async fn silent_clients_delay_no_other() {
    let greeter = Greeter::start(100).await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(greeter.connect().await);
    }
    assert_eq!(greeter.greeting(greeter.connect().await).await, "hello");
}

#[tokio::test(start_paused = true)]
async fn a_handshake_that_does_not_go_on_is_ended_in_time() {
    let greeter = Greeter::start(100).await;
    let took = ended(greeter.connect().await).await;
    assert!(took >= HANDSHAKE_TIMEOUT, "{took:?}");
}

#[tokio::test]
async fn what_is_no_tls_is_ended_and_the_next_client_served() {
    let greeter = Greeter::start(100).await;
    let mut plain = greeter.connect().await;
    plain
        .write_all(b"GET /health HTTP/1.1\r\n\r\n")
        .await
        .unwrap();
    assert!(ended(plain).await < HANDSHAKE_TIMEOUT);
    assert_eq!(greeter.greeting(greeter.connect().await).await, "hello");
}

#[tokio::test]
async fn too_many_handshakes_end_the_oldest() {
    let greeter = Greeter::start(2).await;
    let oldest = greeter.connect().await;
    let second = greeter.connect().await;
    let third = greeter.connect().await;
    assert!(ended(oldest).await < HANDSHAKE_TIMEOUT);
    assert_eq!(greeter.greeting(third).await, "hello");
    assert_eq!(greeter.greeting(second).await, "hello");
}
