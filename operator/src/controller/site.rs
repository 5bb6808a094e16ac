//! What the cluster that an operator serves has and allows, as its flags and the apiserver say.

use std::path::{Component, Path, PathBuf};

/// The first Kubernetes that has image volumes without a feature gate: 1.35.
const IMAGE_VOLUMES_SINCE: u32 = 35;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Site {
    /// Folders of the nodes whose files may be models; none if empty.
    pub(crate) host_paths: Vec<PathBuf>,
    /// Folders of the nodes into which models may be fetched; none if empty.
    pub(crate) cache_paths: Vec<PathBuf>,
    /// Accounts that workers may run under; none if empty.
    pub(crate) service_accounts: Vec<String>,
    /// The apiserver's minor version, where one was asked.
    pub(crate) kubernetes_minor: Option<u32>,
    /// Image volumes work although the apiserver is older than that: its feature gate is on.
    pub(crate) image_volumes: bool,
    /// Folder of the nodes below which workers of one node share memory; none do without.
    pub(crate) shared_memory: Option<PathBuf>,
    /// The first address of a pod is an IPv6 one.
    pub(crate) ipv6: bool,
    /// By whom gangs can be placed or admitted, as the apiserver says.
    pub(crate) gangs: GangApis,
}

/// APIs by which gangs are placed or admitted: those that have a PodGroup, and Kueue's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GangApis {
    /// The version of Kubernetes' own.
    pub(crate) kubernetes: Option<String>,
    pub(crate) coscheduling: bool,
    pub(crate) volcano: bool,
    /// The version of Kueue's Workloads.
    pub(crate) kueue: Option<String>,
}

// === impl Site ===

impl Site {
    /// Whether a model may lie there. A path that leads upwards could lead out of an allowed folder.
    pub(crate) fn allows_model_at(&self, path: &Path) -> bool {
        lies_in_one_of(&self.host_paths, path)
    }

    /// Whether models may be fetched to there.
    pub(crate) fn allows_cache_at(&self, path: &Path) -> bool {
        lies_in_one_of(&self.cache_paths, path)
    }

    /// The version that is too old for image volumes, if it is known to be.
    pub(crate) fn lacks_image_volumes(&self) -> Option<u32> {
        let old = self
            .kubernetes_minor
            .filter(|minor| *minor < IMAGE_VOLUMES_SINCE);
        old.filter(|_| !self.image_volumes)
    }
}

// === impl GangApis ===

impl GangApis {
    /// Group of Kubernetes' own, and the versions of which a PodGroup is written alike, the newest first.
    pub(crate) const KUBERNETES: &str = "scheduling.k8s.io";
    pub(crate) const KUBERNETES_VERSIONS: [&str; 3] = ["v1beta1", "v1alpha3", "v1alpha2"];
    /// Group and version.
    pub(crate) const COSCHEDULING: (&str, &str) = ("scheduling.x-k8s.io", "v1alpha1");
    pub(crate) const VOLCANO: (&str, &str) = ("scheduling.volcano.sh", "v1beta1");
    /// Group of Kueue's, and the versions of which a Workload's conditions are read alike, the newest first.
    pub(crate) const KUEUE: &str = "kueue.x-k8s.io";
    pub(crate) const KUEUE_VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];
}

/// The number in an apiserver's minor version, which some distributions end with a `+`.
pub(crate) fn minor(reported: &str) -> Option<u32> {
    let digits = reported.trim_end_matches(|c: char| !c.is_ascii_digit());
    digits.parse().ok()
}

fn lies_in_one_of(folders: &[PathBuf], path: &Path) -> bool {
    let leads_up = path.components().any(|part| part == Component::ParentDir);
    !leads_up && folders.iter().any(|folder| path.starts_with(folder))
}

#[cfg(test)]
mod tests {
    //! Facts about a cluster's bounds.

    use super::*;

    #[test]
    fn a_model_lies_in_an_allowed_folder_and_no_path_leads_out_of_it() {
        let site = Site {
            host_paths: vec!["/mnt/models".into()],
            cache_paths: vec!["/mnt/nvme".into()],
            ..Site::default()
        };
        let allows = |path: &str| site.allows_model_at(Path::new(path));
        assert!(allows("/mnt/models/a.gguf") && allows("/mnt/models"));
        for path in [
            "/mnt/models-of-others/a.gguf",
            "/mnt/models/../../etc/shadow",
            "/etc/shadow",
            "mnt/models/a.gguf",
        ] {
            assert!(!allows(path), "{path}");
        }
        assert!(!Site::default().allows_model_at(Path::new("/mnt/models")));
        let fetches_to = |path: &str| site.allows_cache_at(Path::new(path));
        assert!(fetches_to("/mnt/nvme/models") && !fetches_to("/mnt/models"));
    }

    #[test]
    fn image_volumes_are_missing_only_where_the_version_is_known_to_be_older() {
        let lacks = |kubernetes_minor, image_volumes| {
            let site = Site {
                kubernetes_minor,
                image_volumes,
                ..Site::default()
            };
            site.lacks_image_volumes()
        };
        assert_eq!(lacks(minor("34+"), false), Some(34));
        assert_eq!(lacks(minor("34"), true), None);
        assert_eq!(lacks(minor("35"), false), None);
        assert_eq!(lacks(minor(""), false), None);
    }
}
