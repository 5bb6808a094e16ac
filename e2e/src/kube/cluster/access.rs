//! How a test gets at the cluster: clients, kubectl, ports, images, the audit log.

use super::Cluster;
use crate::kube::audit::AuditLog;
use crate::kube::daemon::Daemon;
use crate::kube::forward::Forward;
use crate::kube::kubeconfig::{self, Credential};
use anyhow::{Context, Result, ensure};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use std::net::{SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::Command;

// === impl Cluster ===

impl Cluster {
    /// Speaks as an administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.entry.kubeconfig()
    }

    /// Everything the cluster writes lies here; logs under `logs`.
    pub fn dir(&self) -> &Path {
        &self.entry.dir
    }

    pub fn audit_log(&self) -> AuditLog {
        AuditLog::new(&self.entry.dir.join("audit.log"))
    }

    /// A client with an administrator's rights.
    ///
    /// # Errors
    /// When the kubeconfig cannot be read.
    pub async fn kube_client(&self) -> Result<Client> {
        client(&self.kubeconfig()).await
    }

    /// A client with the rights of service account `name`, which must exist.
    ///
    /// # Errors
    /// When the apiserver gives no token.
    pub async fn as_service_account(&self, namespace: &str, name: &str) -> Result<Client> {
        client(&self.service_account_kubeconfig(namespace, name).await?).await
    }

    /// A kubeconfig with the rights of service account `name`, for a process to start with.
    ///
    /// # Errors
    /// When the apiserver gives no token.
    pub async fn service_account_kubeconfig(&self, namespace: &str, name: &str) -> Result<PathBuf> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.kube_client().await?, namespace);
        let request = TokenRequest::default();
        let answer = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await
            .with_context(|| format!("a token for service account {namespace}/{name}"))?;
        let status = answer
            .status
            .context("a token request is answered in its status")?;
        let token = status
            .token
            .context("a token request is answered with a token")?;
        let path = self.dir().join(format!("{namespace}.{name}.kubeconfig"));
        let ca = self.control_plane.plan.authority.identity().cert;
        kubeconfig::write(&path, &self.seat.url(), &ca, Credential::Token(&token))?;
        Ok(path)
    }

    /// Runs kubectl as an administrator and gives its output.
    ///
    /// # Errors
    /// When it fails; the error carries what it said.
    pub fn kubectl(&self, words: &[&str]) -> Result<String> {
        self.tool("kubectl", words)
    }

    /// Runs helm as an administrator and gives its output.
    ///
    /// # Errors
    /// When it fails; the error carries what it said.
    pub fn helm(&self, words: &[&str]) -> Result<String> {
        self.tool("helm", words)
    }

    fn tool(&self, name: &str, words: &[&str]) -> Result<String> {
        let folder = self.dir().join(name);
        let output = Command::new(self.site.tool(name))
            .arg("--kubeconfig")
            .arg(self.kubeconfig())
            .args(words)
            // What a tool keeps for itself lies with the cluster, and goes with it.
            .env("HOME", &folder)
            .output()
            .with_context(|| format!("start {name}"))?;
        ensure!(
            output.status.success(),
            "{name} {}: {}{}",
            words.join(" "),
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr).trim_end()
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// A port of this machine that leads to `target` in the cluster: a Service, a pod.
    ///
    /// # Errors
    /// When no port is free.
    pub fn forward(&mut self, target: SocketAddrV4) -> Result<SocketAddr> {
        let forward = Forward::start(&self.site, self.seat.place(), target)?;
        let address = forward.address;
        self.forwards.push(forward);
        Ok(address)
    }

    /// Runs a program in the network of the control plane until the cluster ends; its log lies with the
    /// cluster's.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn run(&mut self, name: &str, command: Vec<String>) -> Result<()> {
        let program = Daemon::spawn(&self.site, self.seat.place(), name, command)?;
        self.programs.push(program);
        Ok(())
    }

    /// Makes the image in `archive` known to every node.
    ///
    /// # Errors
    /// When a node refuses it.
    pub fn import(&self, archive: &Path) -> Result<()> {
        self.nodes.iter().try_for_each(|node| node.import(archive))
    }
}

/// A client that speaks as `kubeconfig` says.
///
/// # Errors
/// When the kubeconfig cannot be read.
async fn client(kubeconfig: &Path) -> Result<Client> {
    let read = Kubeconfig::read_from(kubeconfig)
        .with_context(|| format!("read {}", kubeconfig.display()))?;
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}
