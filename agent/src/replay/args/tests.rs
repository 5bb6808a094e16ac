//! The replay's command line.

use super::*;
use clap::CommandFactory;

#[test]
fn it_needs_files_and_takes_the_device_of_serving() {
    let parse = |flags: &str| {
        let words = std::iter::once("pd-agent replay").chain(flags.split_whitespace());
        ReplayArgs::try_parse_from(words)
    };
    assert!(parse("--rid r").is_err());
    let args = parse("a.jsonl folder --model /m --cpu-threads 2").unwrap();
    assert_eq!(args.files.len(), 2);
    assert_eq!(args.model_path, Some("/m".into()));
    assert_eq!(args.device.cpu_threads.map(usize::from), Some(2));
}

/// docs/flags.md is made of it.
#[test]
fn the_help_as_documents_have_it() {
    let mut command = ReplayArgs::command().term_width(110);
    insta::assert_snapshot!(command.render_long_help());
}
