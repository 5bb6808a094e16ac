//! Facts about the command line.

use super::*;
use clap::CommandFactory;

#[test]
fn the_command_line_holds_together() {
    Cli::command().debug_assert();
    let target = |line: &str| Cli::try_parse_from(line.split(' ')).map(|cli| cli.target);
    let status = target("kubectl-pd status tiny -n ml").expect("a line");
    assert_eq!(status.namespace.as_deref(), Some("ml"));
    assert!(target("kubectl-pd status tiny -A").is_err());
    assert!(target("kubectl-pd rollout undo tiny --to-revision 3").is_ok());
}

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
