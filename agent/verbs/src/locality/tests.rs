//! Folders as kernels lay them out: a class of links into the tree of buses.

use super::*;
use std::os::unix::fs::symlink;

/// A class with `mlx5_0`, whose hardware's folder says `numa_node`, and that folder.
fn mk_class(root: &Path, numa_node: Option<&str>) -> (PathBuf, PathBuf) {
    let root = root.canonicalize().expect("it is there");
    let pci = root.join("devices/pci0000:a0/0000:a0:01.0/0000:a1:00.0");
    fs::create_dir_all(&pci).expect("the folder can be made");
    if let Some(text) = numa_node {
        fs::write(pci.join("numa_node"), text).expect("the file can be written");
    }
    let class = root.join("class/infiniband");
    fs::create_dir_all(class.join("mlx5_0")).expect("the folder can be made");
    let target = "../../../devices/pci0000:a0/0000:a0:01.0/0000:a1:00.0";
    symlink(target, class.join("mlx5_0/device")).expect("the link can be made");
    (class, pci)
}

#[test]
fn a_place_is_the_node_and_the_folder_behind_the_link() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let (class, pci) = mk_class(root.path(), Some("1\n"));
    let expected = Locality {
        numa_node: Some(1),
        pci_path: Some(pci),
    };
    assert_eq!(Locality::read(&class, "mlx5_0"), expected);
}

#[test]
fn a_node_that_is_unknown_or_unreported_is_none() {
    for numa_node in [Some("-1\n"), None] {
        let root = tempfile::tempdir().expect("a temporary folder");
        let (class, pci) = mk_class(root.path(), numa_node);
        let expected = Locality {
            numa_node: None,
            pci_path: Some(pci),
        };
        assert_eq!(Locality::read(&class, "mlx5_0"), expected, "{numa_node:?}");
    }
}

#[test]
fn a_device_without_hardware_has_no_place() {
    let class = tempfile::tempdir().expect("a temporary folder");
    fs::create_dir(class.path().join("rxe0")).expect("the folder can be made");
    assert_eq!(Locality::read(class.path(), "rxe0"), Locality::default());
}
