//! Lines of a host, read.

use super::*;

#[test]
fn a_line_and_an_end_are_of_their_command() {
    assert_eq!(
        parse("7>a=b"),
        Some((7, ShellOutput::Line("a=b".to_owned())))
    );
    assert_eq!(parse("7>"), Some((7, ShellOutput::Line(String::new()))));
    assert_eq!(parse("12=127"), Some((12, ShellOutput::Code(127))));
}

#[test]
fn what_is_of_no_command_is_none() {
    for line in ["ready", "", ">x", "7", "7=x", "7 x", "[    1.0] kernel"] {
        assert_eq!(parse(line), None, "{line}");
    }
}
