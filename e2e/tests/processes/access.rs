//! The router's API behind keys and TLS: who is let in, what streams, and that keys and certificate
//! are replaced as kubelet replaces a mounted Secret, while a chat goes on.

mod mounted_secret;

use anyhow::{Context, Result, ensure};
use mounted_secret::MountedSecret;
use pd_e2e::certs::{Authority, Identity};
use pd_e2e::client::{Client, roots, tls_config};
use pd_e2e::fleet::{Fleet, FleetSpec, eventually};
use pd_e2e::process::Process;
use pd_e2e::quiet::quiet;
use pd_e2e::{address, binaries};
use pd_protocol::ports;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

const CHAT: &str = "/v1/chat/completions";
/// Every key begins so, and no answer and no log holds it.
const KEY_PREFIX: &str = "sk-e2e-";
const KEY_A: &str = "sk-e2e-alpha";
const KEY_B: &str = "sk-e2e-beta";
/// Changed files are read within two seconds; the machine may be busy.
const RELOADED_WITHIN: Duration = Duration::from_secs(10);
/// A router that refuses its flags ends at once.
const ENDED_WITHIN: Duration = Duration::from_secs(10);
/// Clients that connect and never say a word, for as long as the test runs.
const SILENT_CLIENTS: usize = 50;

struct Stand {
    fleet: Fleet,
    authority: Authority,
    keys: MountedSecret,
    tls: MountedSecret,
    _silent: Vec<TcpStream>,
    _folder: TempDir,
}

// === impl Stand ===

impl Stand {
    async fn start() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let address = address::fresh();
        let authority = Authority::new(&folder.path().join("authority"))?;
        let first = issue(&authority, "first", address)?;
        let tls = MountedSecret::new(folder.path().join("tls"), &entries(&first))?;
        let keys = MountedSecret::new(folder.path().join("keys"), &[("team-a", KEY_A)])?;
        let mut spec = FleetSpec::new(binaries::smollm2());
        spec.agent_args = words("--served-model-name smollm2");
        spec.router_address = Some(address);
        spec.router_authority = Some(authority.identity().cert);
        spec.router_args = words(&format!(
            "--api-key-file {} --tls-cert-path {} --tls-key-path {} --log-level debug",
            keys.path().display(),
            tls.path().join("tls.crt").display(),
            tls.path().join("tls.key").display(),
        ));
        let fleet = spec.start().await?;
        let mut silent = Vec::new();
        for _ in 0..SILENT_CLIENTS {
            silent.push(TcpStream::connect((address, ports::HTTP)).await?);
        }
        Ok(Self {
            fleet,
            authority,
            keys,
            tls,
            _silent: silent,
            _folder: folder,
        })
    }

    fn client(&self, key: &str) -> Result<Client> {
        Client::trusting(&self.authority.identity().cert)?.with_bearer(key)
    }

    async fn status(&self, client: &Client) -> Result<u16> {
        let answer = client.get(&self.fleet.url("/v1/models")).await?;
        Ok(answer.status.as_u16())
    }

    /// The certificate that a new connection is shown.
    async fn shown(&self) -> Result<CertificateDer<'static>> {
        let config = tls_config(roots(&self.authority.identity().cert)?);
        let address = self.fleet.router_address;
        let tcp = TcpStream::connect((address, ports::HTTP)).await?;
        let name = ServerName::from(IpAddr::V4(address));
        let tls = TlsConnector::from(Arc::new(config))
            .connect(name, tcp)
            .await?;
        let chain = tls.get_ref().1.peer_certificates();
        let first = chain.and_then(<[_]>::first).context("no certificate")?;
        Ok(first.clone().into_owned())
    }

    async fn logs(&self, part: &str) -> Result<()> {
        eventually(RELOADED_WITHIN, || async {
            let log = self.fleet.router.log();
            ensure!(log.contains(part), "no {part:?} in the log:\n{log}");
            Ok(())
        })
        .await
    }
}

/// A certificate for the router, and its key, as PEM.
fn issue(authority: &Authority, name: &str, address: Ipv4Addr) -> Result<[String; 2]> {
    let Identity { cert, key } = authority.server(name, "router", &[&address.to_string()])?;
    Ok([fs::read_to_string(cert)?, fs::read_to_string(key)?])
}

fn entries([cert, key]: &[String; 2]) -> [(&'static str, &str); 2] {
    [("tls.crt", cert), ("tls.key", key)]
}

fn chat(max_tokens: u32) -> Value {
    json!({
        "model": "smollm2", "max_tokens": max_tokens, "temperature": 0, "ignore_eos": true,
        "stream": true, "messages": [{"role": "user", "content": "Write about the sea."}],
    })
}

/// What a streamed chat says.
async fn answer(client: &Client, url: &str, request: &Value) -> Result<String> {
    let events = client.stream(url, request).await?.rest().await?;
    let delta = |event: &Value| {
        let content = &event["choices"][0]["delta"]["content"];
        content.as_str().unwrap_or_default().to_owned()
    };
    Ok(events.iter().map(delta).collect())
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_and_certificate_are_replaced_while_a_chat_streams() -> Result<()> {
    let mut stand = Stand::start().await?;
    let [alpha, beta] = [stand.client(KEY_A)?, stand.client(KEY_B)?];
    let first = stand.shown().await?;
    let request = chat(1200);
    let (client, url) = (alpha.clone(), stand.fleet.url(CHAT));
    let streamed = tokio::spawn({
        let request = request.clone();
        async move { answer(&client, &url, &request).await }
    });

    stand.keys.replace(&[("team-b", KEY_B)])?;
    let second = issue(&stand.authority, "second", stand.fleet.router_address)?;
    stand.tls.replace(&entries(&second))?;
    eventually(RELOADED_WITHIN, || async {
        ensure!(stand.status(&beta).await? == 200, "the new key is refused");
        ensure!(stand.status(&alpha).await? == 401, "the old key opens");
        ensure!(
            stand.shown().await? != first,
            "the old certificate is shown"
        );
        Ok(())
    })
    .await
    .with_context(|| stand.fleet.logs())?;
    ensure!(!streamed.is_finished(), "the chat was over too soon");
    let streamed = streamed.await?.with_context(|| stand.fleet.logs())?;

    // A key that cannot be used is left out, and a certificate that cannot be changes nothing.
    let shown = stand.shown().await?;
    stand.keys.replace(&[("team-b", KEY_B), ("team-c", "")])?;
    stand
        .logs("team-c (--api-key-file) cannot be used: it is empty")
        .await?;
    let other = issue(&stand.authority, "other", stand.fleet.router_address)?;
    stand
        .tls
        .replace(&[("tls.crt", &second[0]), ("tls.key", &other[1])])?;
    stand.logs("do not serve together").await?;
    ensure!(stand.status(&beta).await? == 200, "the good key was lost");
    ensure!(stand.shown().await? == shown, "the pair before was lost");

    // The last key is taken away: no client is admitted.
    stand.keys.replace(&[])?;
    stand.logs("no API key is in").await?;
    ensure!(stand.status(&beta).await? == 401, "a revoked key opens");
    stand.keys.replace(&[("team-b", KEY_B)])?;
    eventually(RELOADED_WITHIN, || async {
        ensure!(stand.status(&beta).await? == 200, "the key is not back");
        Ok(())
    })
    .await?;

    let plain = FleetSpec::new(binaries::smollm2());
    let address = address::fresh();
    let _router = plain.start_router(&stand.fleet.workers, address).await?;
    let url = format!("http://{address}:{}{CHAT}", ports::HTTP);
    let expected = answer(&Client::new(), &url, &request).await?;
    ensure!(
        streamed == expected,
        "{streamed:?}\ninstead of\n{expected:?}"
    );
    ensure!(!expected.is_empty(), "the chat says nothing");
    unharmed(&stand).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_key_or_without_tls_no_client_is_served() -> Result<()> {
    let stand = Stand::start().await?;
    let fleet = &stand.fleet;
    let wrong = stand.client("sk-e2e-wrong")?;
    for (client, path) in [(&fleet.client, CHAT), (&wrong, CHAT), (&wrong, "/generate")] {
        let answer = client.post(&fleet.url(path), &chat(4)).await?;
        let error = &answer.json()?["error"];
        ensure!(answer.status == 401, "{path}: {}", answer.text());
        ensure!(error["code"] == "invalid_api_key", "{error}");
        let message = error["message"].as_str().unwrap_or_default();
        ensure!(message.contains("Authorization: Bearer"), "{error}");
        ensure!(!answer.text().contains(KEY_PREFIX), "{error}");
    }
    for path in ["/health", "/ready", "/metrics"] {
        let answer = fleet.client.get(&fleet.url(path)).await?;
        ensure!(answer.status == 200, "{path}: {}", answer.status);
    }

    let stranger = Client::new().get(&fleet.url("/health")).await;
    ensure!(
        stranger.is_err(),
        "a client that trusts no authority was served"
    );
    let mut plain = TcpStream::connect((fleet.router_address, ports::HTTP)).await?;
    plain
        .write_all(b"GET /health HTTP/1.1\r\nhost: router\r\n\r\n")
        .await?;
    let mut answer = Vec::new();
    // A reset is an end, too.
    let _ = plain.read_to_end(&mut answer).await;
    ensure!(!answer.starts_with(b"HTTP/"), "plain HTTP was answered");
    let metrics = fleet.client.get(&fleet.url("/metrics")).await?.text();
    let failures = "pd_router_tls_handshake_failures_total{reason=\"broken\"}";
    ensure!(metrics.contains(failures), "no {failures}");
    unharmed(&stand).await
}

/// A key still opens, workers hold nothing, nothing panicked and no key was shown.
async fn unharmed(stand: &Stand) -> Result<()> {
    let fleet = &stand.fleet;
    let mut shown = fleet.client.get(&fleet.url("/metrics")).await?.text();
    for key in [KEY_A, KEY_B] {
        let client = stand.client(key)?;
        shown += &client.get(&fleet.url("/server_info")).await?.text();
    }
    ensure!(shown.contains("\"version\""), "no key opens: {shown}");
    for worker in &fleet.workers {
        quiet(&fleet.client, &worker.url()).await?;
    }
    let logs = fleet.logs();
    ensure!(!logs.contains("panicked"), "a thread panicked\n{logs}");
    ensure!(!(logs + &shown).contains(KEY_PREFIX), "a key was shown");
    Ok(())
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named_before_anyone_is_served() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let authority = Authority::new(&folder.path().join("authority"))?;
    let pair = issue(&authority, "first", Ipv4Addr::LOCALHOST)?;
    let other = issue(&authority, "other", Ipv4Addr::LOCALHOST)?;
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).map(|()| path.display().to_string())
    };
    let [cert, key, other] = [
        write("tls.crt", &pair[0])?,
        write("tls.key", &pair[1])?,
        write("other.key", &other[1])?,
    ];
    let empty = write("empty", "")?;
    fs::create_dir(folder.path().join("none"))?;
    let none = folder.path().join("none").display().to_string();
    let tls = |cert: &str, key: &str| format!("--tls-cert-path {cert} --tls-key-path {key}");
    for (flags, parts) in [
        (
            format!("--api-key-file {empty}"),
            [empty.as_str(), "it is empty"],
        ),
        (format!("--api-key-file {none}"), [&none, "no API key"]),
        (
            format!("--api-key-file {cert}"),
            [&cert, "a file is one key"],
        ),
        (tls(&empty, &key), [&empty, "--tls-cert-path"]),
        (tls(&cert, &empty), [&empty, "--tls-key-path"]),
        (tls(&cert, &other), [&other, "do not serve together"]),
        (
            format!("--tls-cert-path {cert}"),
            ["--tls-key-path", "required"],
        ),
        ("--api-key=".to_owned(), ["--api-key", "it is empty"]),
    ] {
        refused(&flags, &parts).await.with_context(|| flags)?;
    }
    Ok(())
}

async fn refused(flags: &str, parts: &[&str]) -> Result<()> {
    let address = address::fresh();
    let args = words(&format!(
        "--host {address} --worker-urls http://{address}:1 {flags}"
    ));
    let mut router = Process::spawn("router", &binaries::binary("pd-router"), &args, &[])?;
    let status = router.wait_exit(ENDED_WITHIN).await?;
    ensure!(!status.success(), "it ended well");
    eventually(ENDED_WITHIN, || async {
        let log = router.log();
        for part in parts {
            ensure!(log.contains(part), "no {part:?} in: {log}");
        }
        ensure!(!log.contains("BEGIN"), "it shows what a file holds: {log}");
        Ok(())
    })
    .await
}
