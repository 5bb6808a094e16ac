//! Facts about the command line.

use super::*;

/// The help of a program and of each of its subcommands, below one another.
fn help(command: &mut clap::Command) -> String {
    let mut text = command.render_long_help().to_string();
    let visible =
        |command: &&mut clap::Command| !command.is_hide_set() && command.get_name() != "help";
    for subcommand in command.get_subcommands_mut().filter(visible) {
        let rule = "-".repeat(80);
        text.push_str(&format!("\n{rule}\n{}", help(subcommand)));
    }
    text
}

/// docs/flags.md is made of it.
#[test]
fn the_help_as_documents_have_it() {
    let mut command = <Cli as clap::CommandFactory>::command().term_width(110);
    command.build();
    insta::assert_snapshot!(help(&mut command));
}
