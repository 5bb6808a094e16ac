//! What TLS between peers costs: a handshake, and bytes of each cipher.
//!
//! `cargo run --release -p pd-identity --example speed`
//!
//! Both ends run in one thread, so that a figure is the work of both. Rates are of the processor time of that thread, since
//! other work may share the core.

#![allow(clippy::print_stdout, reason = "an example prints its results")]

use pd_identity::{Clients, Identity, Keyring, Peers, Stream};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{cipher_suite as suite, default_provider};
use rustls::pki_types::ServerName;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedCipherSuite};
use std::fs;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

const HANDSHAKES: usize = 2000;
const WRITE_BYTES: usize = 64 << 10;
const WRITES: usize = 16 << 10;
/// The best of so many counts; what disturbs a run makes it slower.
const RUNS: usize = 5;
const NAME: &str = "peer";

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    handshakes().await?;
    for cipher in [
        None,
        Some(suite::TLS13_AES_128_GCM_SHA256),
        Some(suite::TLS13_AES_256_GCM_SHA384),
        Some(suite::TLS13_CHACHA20_POLY1305_SHA256),
    ] {
        let name = cipher.map_or("plain".to_owned(), |cipher| format!("{:?}", cipher.suite()));
        let (mut memory, mut loopback) = (Duration::MAX, Duration::MAX);
        for _ in 0..RUNS {
            let (ours, theirs) = duplex(4 * WRITE_BYTES);
            memory = memory.min(transfer(cipher, ours, theirs).await?);
            let (ours, theirs) = connection().await?;
            loopback = loopback.min(transfer(cipher, ours, theirs).await?);
        }
        let (memory, loopback) = (rate(memory), rate(loopback));
        println!("{name}: {memory:.2} GB/s in memory, {loopback:.2} GB/s over loopback");
    }
    Ok(())
}

async fn handshakes() -> io::Result<()> {
    let keyring = || Keyring::parse("key", &[b'k'; 44]).map_err(io::Error::other);
    let server = Peers::Tls(Identity::new(keyring()?));
    let client = Peers::Tls(Identity::new(keyring()?));
    let mut times = Vec::with_capacity(HANDSHAKES);
    let start = processor_time()?;
    for _ in 0..HANDSHAKES {
        let (ours, theirs) = duplex(WRITE_BYTES);
        let start = Instant::now();
        tokio::try_join!(
            server.accept(ours, Clients::Required),
            client.connect(theirs)
        )?;
        times.push(start.elapsed());
    }
    let each = (processor_time()? - start) / u32::try_from(HANDSHAKES).unwrap_or(u32::MAX);
    times.sort();
    let (least, median) = (times[0], times[HANDSHAKES / 2]);
    println!(
        "handshake: {each:.0?} of processor time; elapsed: least {least:.0?}, median {median:.0?}"
    );
    Ok(())
}

async fn connection() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (accepted, connected) = tokio::try_join!(listener.accept(), TcpStream::connect(address))?;
    Ok((accepted.0, connected))
}

/// How long it takes to move all writes from one end to the other.
async fn transfer<IO>(
    cipher: Option<SupportedCipherSuite>,
    ours: IO,
    theirs: IO,
) -> io::Result<Duration>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let (mut reader, mut writer) = match cipher {
        None => (Stream::Plain(ours), Stream::Plain(theirs)),
        Some(cipher) => encrypted(cipher, ours, theirs).await?,
    };
    let start = processor_time()?;
    let writing = async {
        let bytes = vec![7; WRITE_BYTES];
        for _ in 0..WRITES {
            writer.write_all(&bytes).await?;
        }
        writer.shutdown().await
    };
    let reading = async {
        let mut bytes = vec![0; WRITE_BYTES];
        while reader.read(&mut bytes).await? > 0 {}
        Ok(())
    };
    tokio::try_join!(writing, reading)?;
    Ok(processor_time()? - start)
}

async fn encrypted<IO>(
    cipher: SupportedCipherSuite,
    ours: IO,
    theirs: IO,
) -> io::Result<(Stream<IO>, Stream<IO>)>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let provider = Arc::new(CryptoProvider {
        cipher_suites: vec![cipher],
        ..default_provider()
    });
    let own = generate_simple_self_signed([NAME.to_owned()]).map_err(io::Error::other)?;
    let CertifiedKey { cert, signing_key } = own;
    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).map_err(io::Error::other)?;
    let server = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(vec![cert.into()], signing_key.into())
        .map_err(io::Error::other)?;
    let client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
    let (reader, writer) = tokio::try_join!(
        TlsAcceptor::from(Arc::new(server)).accept(ours),
        TlsConnector::from(Arc::new(client)).connect(name, theirs)
    )?;
    Ok((reader.into(), writer.into()))
}

/// Of this thread so far.
fn processor_time() -> io::Result<Duration> {
    let text = fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds = text.split(' ').next().and_then(|word| word.parse().ok());
    let nanoseconds = nanoseconds.ok_or(io::ErrorKind::InvalidData)?;
    Ok(Duration::from_nanos(nanoseconds))
}

/// In 10⁹ bytes a second.
fn rate(time: Duration) -> f64 {
    let writes = u32::try_from(WRITES).unwrap_or(u32::MAX);
    let write_bytes = u32::try_from(WRITE_BYTES).unwrap_or(u32::MAX);
    f64::from(writes) * f64::from(write_bytes) / time.as_secs_f64() / 1e9
}
