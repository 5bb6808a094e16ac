//! Which files of a repository a server of the model needs. Many hold the same weights in several formats.

use crate::client::{Listing, RemoteFile};
use crate::error::HubError;
use crate::names::RepoName;

/// Weights in formats of other frameworks, and what training leaves.
const OTHER_WEIGHTS: [&str; 14] = [
    "bin",
    "ckpt",
    "gguf",
    "h5",
    "mlmodel",
    "msgpack",
    "npz",
    "onnx",
    "onnx_data",
    "ot",
    "pt",
    "pth",
    "tflite",
    "zip",
];
/// Folders that hold a copy of the model for something else.
const OTHER_FOLDERS: [&str; 6] = ["coreml", "metal", "mlx", "onnx", "openvino", "original"];
/// The weights once more, as Mistral's own server reads them.
const CONSOLIDATED: &str = "consolidated";
const SAFETENSORS: &str = "safetensors";

/// The files to fetch: `file` alone where it is given, otherwise all but weights that are there once more in another
/// format, and hidden files.
pub(crate) fn choose(
    listing: &Listing,
    repo: &RepoName,
    file: Option<&str>,
) -> Result<Vec<RemoteFile>, HubError> {
    let all = || listing.files.iter();
    if let Some(path) = file {
        let found = all().find(|is| is.path == path).cloned();
        let missing = || HubError::NoFile {
            repo: repo.clone(),
            path: path.to_owned(),
        };
        return Ok(vec![found.ok_or_else(missing)?]);
    }
    let in_root = |is: &&RemoteFile| !is.path.contains('/');
    let of_root = |kind: &str| all().filter(in_root).any(|is| extension(&is.path) == kind);
    if !of_root(SAFETENSORS) && !of_root("bin") {
        let hint = if all().any(|is| extension(&is.path) == "gguf") {
            "it has GGUF files: name one by its path, `file`"
        } else {
            "give a repository with safetensors, or name one file"
        };
        return Err(HubError::NothingToServe(format!(
            "{repo} holds no weights that an engine reads; {hint}"
        )));
    }
    let is_whole_model =
        |is: &&RemoteFile| extension(&is.path) == SAFETENSORS && !is.path.starts_with(CONSOLIDATED);
    let has_own = all().filter(in_root).any(|is| is_whole_model(&is));
    let wanted = |is: &&RemoteFile| {
        let path = is.path.as_str();
        let is_hidden = path.split('/').any(|part| part.starts_with('.'));
        let folder = path.split_once('/').map_or("", |(folder, _)| folder);
        let is_other = of_root(SAFETENSORS) && OTHER_WEIGHTS.contains(&extension(path));
        let is_second = has_own && path.starts_with(CONSOLIDATED);
        !is_hidden && !is_other && !is_second && !OTHER_FOLDERS.contains(&folder)
    };
    Ok(all().filter(wanted).cloned().collect())
}

fn extension(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(_, extension)| extension)
}

#[cfg(test)]
mod tests {
    //! Facts about the choice of files.

    use super::*;
    use crate::hash::FileHash;
    use crate::names::Commit;

    fn mk_listing(paths: &[&str]) -> Listing {
        let file = |path: &&str| RemoteFile {
            path: (*path).to_owned(),
            size: 1,
            hash: FileHash::Git("0".repeat(40)),
        };
        Listing {
            commit: Commit::parse(&"0".repeat(40)).expect("a commit"),
            files: paths.iter().map(file).collect(),
        }
    }

    fn chosen(paths: &[&str], file: Option<&str>) -> Result<Vec<String>, String> {
        let repo = "a/b".parse().expect("a name");
        let files = choose(&mk_listing(paths), &repo, file).map_err(|why| why.to_string())?;
        Ok(files.into_iter().map(|file| file.path).collect())
    }

    #[test]
    fn weights_come_in_one_format_only() {
        let repository = [
            ".gitattributes",
            "config.json",
            "consolidated.safetensors",
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "model.safetensors.index.json",
            "onnx/model.onnx",
            "original/consolidated.00.pth",
            "pytorch_model.bin",
            "tokenizer.json",
        ];
        let files = chosen(&repository, None).expect("files");
        let expected = [
            "config.json",
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "model.safetensors.index.json",
            "tokenizer.json",
        ];
        assert_eq!(files, expected);
    }

    #[test]
    fn the_only_weights_are_taken_in_any_format() {
        let only_bin = ["config.json", "pytorch_model.bin"];
        assert_eq!(chosen(&only_bin, None).expect("files"), only_bin);
        let only_consolidated = ["consolidated.safetensors", "params.json"];
        assert_eq!(
            chosen(&only_consolidated, None).expect("files"),
            only_consolidated
        );
    }

    #[test]
    fn of_gguf_files_one_is_named() {
        let repository = ["README.md", "q4.gguf", "q8.gguf"];
        let refused = chosen(&repository, None).expect_err("no choice");
        assert_eq!(
            refused,
            "a/b holds no weights that an engine reads; it has GGUF files: name one by its path, `file`"
        );
        assert_eq!(
            chosen(&repository, Some("q8.gguf")).expect("one"),
            ["q8.gguf"]
        );
        let missing = chosen(&repository, Some("q2.gguf")).expect_err("none");
        assert_eq!(missing, "a/b has no file q2.gguf");
    }
}
