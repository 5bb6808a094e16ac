//! What the crate's header promises of its modules.

use std::fs;
use std::path::Path;

/// Files of `folder` in `src` that are not tests, by path, with their text.
fn sources(folder: &Path) -> Vec<(String, String)> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    for entry in fs::read_dir(src.join(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = folder.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|kind| kind == "rs") && !path.ends_with("tests.rs") {
            let text = fs::read_to_string(entry.path()).unwrap();
            found.push((path.to_str().unwrap().to_owned(), text));
        }
    }
    found
}

/// Product code that contains one of `words`.
fn files_with(words: &[&str]) -> Vec<String> {
    let mut files = sources(Path::new(""));
    files.retain(|(_, text)| words.iter().any(|word| text.contains(word)));
    files.into_iter().map(|(path, _)| path).collect()
}

/// The lines of the header's picture, the highest first, with the modules in each.
fn layers() -> Vec<Vec<&'static str>> {
    let header = include_str!("lib.rs");
    let picture = header.split("```").nth(1).expect("a picture");
    let lines = picture.lines().skip(1).filter_map(|line| {
        let line = line.strip_prefix("//! ")?;
        // Two spaces stand between modules, more before what they are.
        let modules = line.split("   ").next()?;
        Some(modules.split_whitespace().collect())
    });
    lines.collect()
}

#[test]
fn a_module_knows_only_modules_of_lower_layers() {
    let layers = layers();
    let height = |module: &str| {
        let layer = layers.iter().position(|layer| layer.contains(&module));
        layers.len() - layer.unwrap_or_else(|| panic!("{module} is missing in the picture"))
    };
    for (path, text) in sources(Path::new("")) {
        let own = path.split(['/', '.']).next().unwrap();
        if matches!(own, "lib" | "main") {
            continue;
        }
        for import in text.split("crate::").skip(1) {
            let import = import.split(|c: char| c != '_' && !c.is_ascii_lowercase());
            let module = import.into_iter().next().unwrap();
            assert!(
                module == own || height(module) < height(own),
                "{path} imports {module}"
            );
        }
    }
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
