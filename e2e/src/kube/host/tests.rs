//! Which installation the error asks for.

use super::*;

#[test]
fn a_go_of_the_needed_version_is_accepted() {
    for version in [
        "go1.26",
        "go1.26.8",
        "go1.27rc1",
        "go2.0",
        "go1.26.1 X:nocoverage",
    ] {
        assert!(check_go_version(version).is_ok(), "{version}");
    }
}

#[test]
fn an_old_go_is_refused_with_the_version_to_get() {
    let error = check_go_version("go1.19.8").unwrap_err().to_string();
    assert!(error.starts_with("go1.19.8 is too old"), "{error}");
    assert!(error.contains("Go 1.26"), "{error}");
}

#[test]
fn a_missing_go_is_called_missing() {
    let error = check_go_version("").unwrap_err().to_string();
    assert!(error.starts_with("there is no `go`"), "{error}");
}

#[test]
fn missing_programs_come_with_one_line_that_installs_them() {
    let missing = [
        ("containerd", "containerd"),
        ("ctr", "containerd"),
        ("runc", "runc"),
    ];
    assert_eq!(
        missing_programs(&missing).as_deref(),
        Some(
            "nodes need containerd, ctr, runc; on Debian: apt-get install \
             --no-install-recommends containerd runc"
        )
    );
    assert_eq!(missing_programs(&[]), None);
}
