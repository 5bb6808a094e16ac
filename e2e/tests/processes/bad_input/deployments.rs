//! `PDDeployment` files that cannot run, through `pd-operator local`: refused by field path before
//! anything is started. The table of broken rules is the one that the rules' own tests use.

use super::says;
use anyhow::{Context, Result, ensure};
use pd_e2e::{address, binaries};
use pd_protocol::ports;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::timeout;

/// A file that cannot run is refused within this.
const REFUSED_WITHIN: Duration = Duration::from_secs(2);

/// An edit of the minimal object for which it is refused, and where and why.
#[derive(Deserialize)]
struct Case {
    /// JSON pointers and what is set there.
    set: Map<String, Value>,
    path: String,
    says: String,
}

/// A folder with a model and a deployment file, and an address for its router.
struct Desk {
    folder: TempDir,
    address: Ipv4Addr,
}

// === impl Desk ===

impl Desk {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("m.gguf"), "a model that stays closed")?;
        Ok(Self {
            folder,
            address: address::fresh(),
        })
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("d.yaml")
    }

    /// Runs the file as it is; gives what the operator says when it refuses.
    async fn refusal(&self) -> Result<String> {
        let output = Command::new(binaries::binary("pd-operator"))
            .args(["local", "--listen"])
            .arg(format!("{}:{}", self.address, ports::HTTP))
            .arg("-f")
            .arg(self.file())
            .env("RUST_BACKTRACE", "1")
            .env("PDSERVE_CACHE_DIR", self.folder.path().join("cache"))
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = timeout(REFUSED_WITHIN, output).await;
        let output = output.with_context(|| format!("it runs after {REFUSED_WITHIN:?}"))??;
        let said = String::from_utf8(output.stderr)?;
        ensure!(
            output.status.code() == Some(1),
            "it ended with {}: {said}",
            output.status
        );
        for word in ["panicked", "backtrace"] {
            ensure!(!said.contains(word), "{word}: {said}");
        }
        self.nothing_started()?;
        Ok(said)
    }

    /// No state was written, and no process was given anything of this folder.
    fn nothing_started(&self) -> Result<()> {
        ensure!(
            !self.folder.path().join("cache").exists(),
            "state was written"
        );
        let ours = self.folder.path().display().to_string();
        for entry in std::fs::read_dir("/proc")? {
            // A process may end while we look.
            let command = std::fs::read(entry?.path().join("cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command).into_owned();
            ensure!(!command.contains(&ours), "{command} was started");
        }
        Ok(())
    }

    async fn refuses(&self, text: &str, parts: &[&str]) -> Result<()> {
        std::fs::write(self.file(), text)?;
        let said = self.refusal().await.with_context(|| text.to_owned())?;
        says(&said, parts).with_context(|| text.to_owned())
    }
}

fn minimal() -> Value {
    json!({
        "apiVersion": "pdserve.io/v1alpha1",
        "kind": "PDDeployment",
        "metadata": {"name": "tiny"},
        "spec": {"model": {"source": {"hostPath": {"path": "m.gguf"}}}, "pools": {}},
    })
}

/// Sets a value at a JSON pointer, making the objects on the way.
fn set(document: &mut Value, pointer: &str, value: Value) {
    let names = pointer.trim_start_matches('/').split('/');
    *names.fold(document, |node, name| &mut node[name]) = value;
}

fn edited(edits: &Map<String, Value>) -> String {
    let mut document = minimal();
    for (pointer, value) in edits {
        set(&mut document, pointer, value.clone());
    }
    // JSON is YAML.
    document.to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_broken_rule_names_its_field_and_starts_nothing() -> Result<()> {
    let table = binaries::workspace().join("crds/golden/refused.json");
    let cases: Vec<Case> = serde_json::from_slice(&std::fs::read(table)?)?;
    ensure!(!cases.is_empty(), "the table is empty");
    let desk = Desk::new()?;
    for Case { set, path, says } in cases {
        let path = if path.is_empty() { "object" } else { &path };
        let expected = format!("{path}: {says}");
        let file = desk.file().display().to_string();
        desk.refuses(&edited(&set), &[&file, &expected]).await?;
    }
    Ok(())
}

/// Valid objects of which this machine would not carry out a part.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_this_machine_cannot_carry_out_is_refused_by_its_field() -> Result<()> {
    let cases: [(Value, &[&str]); 7] = [
        (
            json!({"/spec/model/source/hostPath/path": "gone.gguf"}),
            &[
                "spec.model.source.hostPath.path",
                "no file or folder at",
                "gone.gguf",
            ],
        ),
        (
            json!({"/spec/model/source": {"pvc": {"claimName": "models"}}}),
            &["spec.model.source: ", "only hostPath"],
        ),
        (
            json!({
                "/spec/engine": {"kind": "sglang", "image": "sglang", "command": ["no-such-python"]},
                "/spec/security/peers": "Plain",
            }),
            &["no-such-python is not on the PATH", "spec.engine.command"],
        ),
        (
            json!({"/spec/router/replicas": 2}),
            &["spec.router.replicas: ", "one router"],
        ),
        (
            json!({"/spec/kv/transport": "rdma"}),
            &["spec.kv.transport: ", "shm or tcp"],
        ),
        (
            json!({"/spec/pools/decode/resources": {"limits": {"nvidia.com/gpu": 1}}}),
            &[
                "decode pod",
                "spec.containers[0].resources.limits[nvidia.com/gpu]: ",
                "remove it",
            ],
        ),
        (
            json!({"/spec/pools/prefill/podTemplate": {"spec": {"nodeSelector": {"gpu": "h100"}}}}),
            &["prefill pod", "spec.nodeSelector.gpu: ", "remove it"],
        ),
    ];
    let desk = Desk::new()?;
    for (edits, parts) in cases {
        let edits = edits.as_object().expect("edits are an object");
        desk.refuses(&edited(edits), parts).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_hold_no_deployment_are_named() -> Result<()> {
    let desk = Desk::new()?;
    let one = minimal().to_string();
    let nested = "[".repeat(100_000);
    for (text, parts) in [
        ("", &["0 objects", "exactly one"][..]),
        ("# nothing\n---\n", &["0 objects"]),
        ("spec: [1, 2\nkind: x", &["not valid YAML", "line"]),
        ("kind: a\nkind: b\n", &["not valid YAML", "kind"]),
        ("just words", &["apiVersion", "kind"]),
        (&format!("{one}\n---\n{one}"), &["2 objects"]),
        (&nested, &["not valid YAML"]),
        ("a: &a [*a]", &["not valid"]),
    ] {
        let file = desk.file().display().to_string();
        desk.refuses(text, &[&[file.as_str()], parts].concat())
            .await?;
    }
    std::fs::write(desk.file(), b"\xff\xfe\x00")?;
    says(&desk.refusal().await?, &["cannot read", "UTF-8"])?;
    std::fs::remove_file(desk.file())?;
    says(&desk.refusal().await?, &["cannot read", "No such file"])?;
    std::fs::create_dir(desk.file())?;
    says(&desk.refusal().await?, &["cannot read", "directory"])
}
