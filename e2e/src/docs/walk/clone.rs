//! A newcomer's clone: a copy of what git does not ignore, which a mount namespace puts in the repository's place, with the builds and
//! downloads of this checkout inside.

use anyhow::{Result, bail};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use tokio::process::Command;

/// What is built or fetched, and not tracked.
const KEPT: [&str; 2] = ["target", ".cache"];
/// Of git: those that are tracked, and those that will be.
const FILES: &str = "--cached --others --exclude-standard";
/// The author of the clone's one commit.
const AUTHOR: &str = "-c user.name=clone -c user.email=clone@localhost";

#[derive(Debug)]
pub(super) struct Clone {
    root: PathBuf,
    folder: PathBuf,
}

// === impl Clone ===

impl Clone {
    /// Copies what git does not ignore in `root`, committed or not, and commits it to a repository of its own. Files and
    /// folders keep their times, by which Cargo knows what it has compiled.
    pub(super) async fn make(root: &Path, folder: &Path) -> Result<Self> {
        let (root_text, folder_text) = (root.display(), folder.display());
        let copy = format!(
            "cd '{root_text}'
            git ls-files -z {FILES} | tar --null --files-from=- --create --format=posix |
                tar --extract --directory='{folder_text}'
            git -C '{folder_text}' init --quiet
            git -C '{folder_text}' add --all
            git -C '{folder_text}' {AUTHOR} commit --quiet --message=clone
            git ls-files -z {FILES} | xargs -0 dirname -z | sort -zu |
                xargs -0 -I{{}} touch -r '{root_text}/{{}}' '{folder_text}/{{}}'"
        );
        std::fs::create_dir_all(folder)?;
        let status = Command::new("bash")
            .args(["-e", "-o", "pipefail", "-c", &copy])
            .status()
            .await?;
        if !status.success() {
            bail!("the files of {} cannot be copied", root.display());
        }
        for kept in KEPT {
            std::fs::create_dir_all(root.join(kept))?;
            match std::fs::read_link(root.join(kept)) {
                Ok(target) => std::os::unix::fs::symlink(target, folder.join(kept))?,
                Err(_) => std::fs::create_dir(folder.join(kept))?,
            }
        }
        Ok(Self {
            root: root.to_owned(),
            folder: folder.to_owned(),
        })
    }

    /// Commands that put it in the repository's place and go there.
    pub(super) fn mounts(&self) -> String {
        let (root, folder) = (self.root.display(), self.folder.display());
        let mut commands = String::new();
        for kept in KEPT
            .iter()
            .filter(|kept| !self.folder.join(kept).is_symlink())
        {
            let _ = writeln!(commands, "mount --bind '{root}/{kept}' '{folder}/{kept}'");
        }
        let _ = writeln!(commands, "mount --rbind '{folder}' '{root}'\ncd '{root}'");
        commands
    }
}
