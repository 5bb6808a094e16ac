//! Facts about the command line.

use super::*;
use clap::CommandFactory;

/// docs/flags.md is made of it.
#[test]
fn the_help_as_documents_have_it() {
    let mut command = Args::command().term_width(110);
    command.build();
    insta::assert_snapshot!(command.render_long_help().to_string());
}
