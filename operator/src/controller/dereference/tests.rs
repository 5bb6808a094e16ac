//! Facts about reading a file.

use super::*;

fn mk_file(folder: &Path, model: &str) -> PathBuf {
    let path = folder.join("tiny.yaml");
    let text = format!(
        "apiVersion: pdserve.io/v1alpha1\nkind: PDDeployment\nmetadata: {{name: tiny}}\n\
         spec:\n  model: {{source: {{hostPath: {{path: {model}}}}}}}\n  pools: {{}}\n"
    );
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn a_relative_model_is_taken_from_the_files_folder() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("m.gguf"), "").unwrap();
    let read = file(&mk_file(folder.path(), "./m.gguf"), None).unwrap();
    let path = folder.path().canonicalize().unwrap().join("m.gguf");
    let source = read.deployment.spec.model.source.host_path.unwrap();
    assert_eq!(Path::new(&source.path), path);
    assert_eq!(read.host_model, Some(HostModel { path, exists: true }));
}

#[test]
fn a_missing_model_is_a_fact_not_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let read = file(&mk_file(folder.path(), "./gone/../none.gguf"), None).unwrap();
    let path = folder.path().join("none.gguf");
    assert_eq!(
        read.host_model,
        Some(HostModel {
            path,
            exists: false
        })
    );
}

#[test]
fn the_port_to_listen_on_is_the_routers() {
    let folder = tempfile::tempdir().unwrap();
    let listen = Some("127.0.0.1:9000".parse().unwrap());
    let read = file(&mk_file(folder.path(), "m"), listen).unwrap();
    assert_eq!(read.deployment.spec.router.port, 9000);
}

#[test]
fn errors_name_the_file() {
    let error = file(Path::new("none.yaml"), None).unwrap_err().to_string();
    assert!(error.starts_with("cannot read none.yaml: "), "{error}");
}
