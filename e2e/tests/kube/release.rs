//! What a release publishes, on a cluster that has nothing else: image and charts are made, signed, pushed to a
//! registry and installed from there.

use crate::stand::{Charts, OPEN_FOLDERS, Stand, chat, deployment};
use anyhow::{Context, Result, ensure};
use pd_e2e::binaries::{binary, workspace};
use pd_e2e::kube::network::REGISTRY;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

const PASSWORD: (&str, &str) = ("COSIGN_PASSWORD", "thrown away");

#[tokio::test]
async fn a_release_is_installed_from_a_registry() -> Result<()> {
    let mut stand = Stand::bare().await?;
    let result = from_a_registry(&mut stand).await;
    stand.end(result)
}

async fn from_a_registry(stand: &mut Stand) -> Result<()> {
    let registry = serve_registry(stand)?;
    let release = Release::new(&stand.cluster.dir().join("release"), registry)?;
    eprintln!("{}", release.make()?);
    eprintln!("{}", release.push()?);
    eprintln!("{}", release.verify()?);

    let open = [OPEN_FOLDERS.to_owned()];
    stand.install(&Charts::in_registry(registry), &open)?;
    stand.serve(&deployment(1, 1)).await?;
    let said = chat(&stand.url).await?;
    ensure!(said == stand.said, "{said:?} instead of {:?}", stand.said);
    let pods = stand.json("get pods --all-namespaces")?;
    let pods = pods["items"].as_array().into_iter().flatten();
    for pod in pods {
        let image = pod["spec"]["containers"][0]["image"].as_str();
        let image = image.context("a container has an image")?;
        eprintln!("{} runs {image}", pod["metadata"]["name"]);
        ensure!(
            image.starts_with(&format!("{REGISTRY}/pdserve:")),
            "{image}"
        );
    }
    eprintln!("{said:?}");
    Ok(())
}

/// Debian's registry beside the apiserver, and where it answers on this machine.
fn serve_registry(stand: &mut Stand) -> Result<SocketAddr> {
    let folder = stand.cluster.dir().join("registry");
    std::fs::create_dir_all(&folder)?;
    let config = serde_json::json!({
        "version": 0.1,
        "storage": {"filesystem": {"rootdirectory": folder.join("data")}},
        "http": {"addr": REGISTRY},
    });
    let file = folder.join("config.yml");
    std::fs::write(&file, config.to_string())?;
    let words = ["docker-registry", "serve", &file.display().to_string()];
    let words = words.map(str::to_owned).to_vec();
    let started = stand.cluster.run("docker-registry", words);
    started.context("install it and skopeo: apt-get install docker-registry skopeo")?;
    stand.cluster.forward(REGISTRY)
}

/// The scripts of `release/`, with programs and a key of their own.
struct Release {
    folder: PathBuf,
    registry: SocketAddr,
    /// With helm and cosign.
    path: String,
}

// === impl Release ===

impl Release {
    fn new(folder: &Path, registry: SocketAddr) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let mut path = std::env::var("PATH")?;
        for tool in ["helm", "cosign"] {
            let found = run(Command::new("release/tool.sh").arg(tool))?;
            let found = Path::new(found.trim()).parent();
            path = format!("{}:{path}", found.context("it lies in a folder")?.display());
        }
        let release = Self {
            folder: folder.to_owned(),
            registry,
            path,
        };
        run(release
            .command("cosign")
            .arg("generate-key-pair")
            .current_dir(folder))?;
        Ok(release)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("PATH", &self.path).envs([PASSWORD]);
        command.env("COSIGN_KEY", self.folder.join("cosign.key"));
        command.env("HOME", &self.folder);
        command
    }

    fn made(&self) -> PathBuf {
        self.folder.join("made")
    }

    /// Nodes know the registry by another address than this machine does.
    fn make(&self) -> Result<String> {
        let programs = binary("pd-agent");
        let programs = programs.parent().context("programs lie in a folder")?;
        let mut command = self.command("release/make.sh");
        command.arg(self.made()).env("BIN", programs);
        run(command.env("REGISTRY", REGISTRY.to_string()))
    }

    fn push(&self) -> Result<String> {
        let mut command = self.command("release/push.sh");
        command.arg(self.made()).arg(self.registry.to_string());
        run(command.env("PLAIN_HTTP", "1"))
    }

    /// As the README of releases instructs those who download one; another key is refused.
    fn verify(&self) -> Result<String> {
        let sums = run(self
            .command("sha256sum")
            .args(["--check", "SHA256SUMS"])
            .current_dir(self.made()))?;
        let mut outputs = vec![sums];
        let image = format!("{}/pdserve:{}", self.registry, env!("CARGO_PKG_VERSION"));
        let blob = ["verify-blob", "--signature", "SHA256SUMS.sig", "SHA256SUMS"];
        let image = ["verify", "--allow-http-registry", image.as_str()];

        let key = self.folder.join("cosign.pub");
        self.signed(&key, &blob)?;
        let signed: Value = serde_json::from_str(&self.signed(&key, &image)?)?;
        outputs.push(format!("signed: {}", signed[0]["critical"]["image"]));

        let other = self.folder.join("other");
        std::fs::create_dir_all(&other)?;
        run(self
            .command("cosign")
            .arg("generate-key-pair")
            .current_dir(&other))?;
        let key = other.join("cosign.pub");
        for words in [&blob[..], &image[..]] {
            let refused = self.signed(&key, words).err();
            let refused = refused.context("another key verifies")?;
            outputs.push(format!(
                "by another key: {}",
                first_error(&format!("{refused:#}"))
            ));
        }
        Ok(outputs.join("\n"))
    }

    fn signed(&self, key: &Path, words: &[&str]) -> Result<String> {
        let mut command = self.command("cosign");
        command.args(words).arg("--insecure-ignore-tlog=true");
        run(command.arg("--key").arg(key).current_dir(self.made()))
    }
}

fn first_error(output: &str) -> &str {
    let mut lines = output.lines().filter(|line| line.starts_with("Error"));
    lines.next().unwrap_or(output)
}

/// Runs a command of the workspace and gives what it printed.
fn run(command: &mut Command) -> Result<String> {
    if command.get_current_dir().is_none() {
        command.current_dir(workspace());
    }
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("start {name}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{name}: {}: {error}",
        output.status
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
