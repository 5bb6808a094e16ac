//! What goes through a seam goes through nothing else.

use std::fs;
use std::path::{Path, PathBuf};

/// Product code of this crate that contains one of `words`, by its path in `src`.
fn files_with(words: &[&str]) -> Vec<String> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    let mut folders = vec![src.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|kind| kind == "rs")
                && !path.ends_with("tests.rs")
                && words
                    .iter()
                    .any(|word| fs::read_to_string(&path).unwrap().contains(word))
            {
                let path = path.strip_prefix(&src).unwrap();
                found.push(path.to_str().unwrap().to_owned());
            }
        }
    }
    found
}

#[test]
fn one_module_reads_a_clock() {
    let clocks = ["tokio::time", "SystemTime", "std::time::Instant"];
    assert_eq!(files_with(&clocks), ["clock.rs"]);
}

#[test]
fn one_module_opens_sockets() {
    let sockets = [
        "tokio::net",
        "std::net::Tcp",
        "TcpStream::connect",
        "try_default()",
    ];
    assert_eq!(files_with(&sockets), ["net.rs"]);
}
