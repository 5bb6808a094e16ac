//! Blocks and marks of made-up documents.

use super::*;

fn block(line: usize, language: Language, mark: Option<Mark>, text: &str) -> Block {
    Block {
        line,
        language,
        mark,
        text: text.to_owned(),
    }
}

#[test]
fn a_block_has_the_mark_of_the_line_before_it() {
    let text = "# A\n\n```sh\nmake demo\n```\n<!-- test: check: needs a registry -->\n```sh\ndocker push x\n```\n```\nout\n```\n";
    let reason = Mark::Check("needs a registry".to_owned());
    assert_eq!(
        of_markdown(text).unwrap(),
        [
            block(4, Language::Shell, None, "make demo\n"),
            block(8, Language::Shell, Some(reason), "docker push x\n"),
            block(11, Language::Other, None, "out\n"),
        ]
    );
}

#[test]
fn a_mark_on_the_first_line_is_that_of_all_blocks() {
    let text = "<!-- test: kube -->\n# A\n```sh\na\n```\n<!-- test: ci -->\n```sh\nb\n```\n";
    let marks: Vec<_> = of_markdown(text)
        .unwrap()
        .into_iter()
        .map(|b| b.mark)
        .collect();
    assert_eq!(marks, [Some(Mark::Kube), Some(Mark::Ci)]);
}

#[test]
fn a_mark_without_reason_block_or_meaning_is_refused() {
    let refused = |text: &str| of_markdown(text).unwrap_err();
    assert_eq!(
        refused("\n<!-- test: check -->\n```sh\n```\n"),
        MarkError::NoReason { line: 2 }
    );
    assert_eq!(
        refused("\n<!-- test: check: -->\n```sh\n```\n"),
        MarkError::NoReason { line: 2 }
    );
    let mark = "later".to_owned();
    assert_eq!(
        refused("\n<!-- test: later -->\n```sh\n```\n"),
        MarkError::Unknown { line: 2, mark }
    );
    assert_eq!(
        refused("\n<!-- test: kube -->\n\n```sh\n```\n"),
        MarkError::BeforeNothing { line: 2 }
    );
    assert_eq!(refused("```sh\nmake\n"), MarkError::NoEnd { line: 2 });
}

#[test]
fn commands_are_those_that_a_shell_reads() {
    let text = "make a   # it's first\n\n# a comment\nhelm install x y \\\n  --wait\ncurl -d '{\n  \"a\": 1}' http://h\nkubectl apply -f - <<YAML\nkind: X\nYAML\nls\n";
    assert_eq!(
        block(1, Language::Shell, None, text).commands(),
        [
            "make a   # it's first",
            "helm install x y --wait",
            "curl -d '{ \"a\": 1}' http://h",
            "kubectl apply -f - <<YAML",
            "ls"
        ]
    );
}

#[test]
fn indented_comments_of_an_example_are_commands() {
    let text =
        "# Words.\n#\n#   kubectl create secret\n#   kubectl get\nkind: X\n# More.\n#   ls\n";
    let blocks = of_comments(text).unwrap();
    assert_eq!(
        blocks[..2],
        [
            block(
                3,
                Language::Shell,
                None,
                "kubectl create secret\nkubectl get\n"
            ),
            block(7, Language::Shell, None, "ls\n"),
        ]
    );
    assert_eq!(blocks[2].language, Language::Yaml);
}
