//! Helm, as a user's hands have it: where the charts come from, what is installed, raised and taken away.

use super::{NAMESPACE, OPEN_FOLDERS, Stand};
use anyhow::Result;
use pd_e2e::binaries::workspace;
use std::path::Path;

/// Where both charts lie.
pub(crate) struct Charts {
    /// A folder or an OCI registry; a chart's name goes behind it.
    place: String,
    /// What Helm needs to read there.
    flags: &'static [&'static str],
}

// === impl Charts ===

impl Charts {
    /// Those of this workspace.
    pub(crate) fn ours() -> Self {
        Self::in_folder(&workspace().join("charts"))
    }

    pub(crate) fn in_folder(folder: &Path) -> Self {
        Self {
            place: folder.display().to_string(),
            flags: &[],
        }
    }

    /// Those that were pushed to a registry without TLS.
    pub(crate) fn in_registry(address: impl std::fmt::Display) -> Self {
        Self {
            place: format!("oci://{address}/charts"),
            flags: &["--plain-http"],
        }
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.place)
    }
}

// === impl Stand ===

impl Stand {
    /// Installs both charts, as the README has it.
    pub(crate) fn install(&self, charts: &Charts, settings: &[String]) -> Result<()> {
        let kinds = charts.path("pdserve-crds");
        let mut words = vec!["install", "pdserve-crds", &kinds];
        words.extend(charts.flags);
        self.cluster.helm(&words)?;
        let new = ["--create-namespace"];
        eprintln!("{}", self.helm_to("install", charts, settings, &new)?);
        Ok(())
    }

    /// Takes both charts to another version.
    pub(crate) fn upgrade(&self, charts: &Charts, settings: &[String]) -> Result<()> {
        let kinds = charts.path("pdserve-crds");
        let mut words = vec!["upgrade", "pdserve-crds", &kinds];
        words.extend(charts.flags);
        self.cluster.helm(&words)?;
        self.helm_to("upgrade", charts, settings, &[])?;
        Ok(())
    }

    /// Another setting of the operator's chart.
    pub(crate) fn helm_upgrade(&self, setting: &str) -> Result<String> {
        let settings = [OPEN_FOLDERS.to_owned(), setting.to_owned()];
        self.helm_to("upgrade", &Charts::ours(), &settings, &[])
    }

    fn helm_to(
        &self,
        verb: &str,
        charts: &Charts,
        settings: &[String],
        more: &[&str],
    ) -> Result<String> {
        let chart = charts.path("pdserve");
        let mut words = vec![verb, "pdserve", &chart, "--namespace", NAMESPACE];
        words.extend(["--wait", "--timeout", "120s"]);
        words.extend(charts.flags.iter().chain(more));
        words.extend(settings.iter().flat_map(|it| ["--set", it]));
        self.cluster.helm(&words)
    }

    /// An install without `--wait`.
    pub(crate) fn helm_install_of(&self, setting: &str) -> Result<String> {
        let chart = Charts::ours().path("pdserve");
        let words = [
            "install", "pdserve", &chart, "-n", NAMESPACE, "--set", setting,
        ];
        self.cluster.helm(&words)
    }

    pub(crate) fn helm_uninstall(&self) -> Result<String> {
        let words = ["uninstall", "pdserve", "--namespace", NAMESPACE, "--wait"];
        self.cluster.helm(&words)
    }
}
