//! The four shapes of a prompt.

use super::{Prompt, Prompts};

fn read(json: &str) -> Result<Prompts, String> {
    serde_json::from_str(json).map_err(|why| why.to_string())
}

fn text(text: &str) -> Prompt {
    Prompt::Text(text.to_owned())
}

#[test]
fn text_ids_and_lists_of_either_are_read() {
    assert_eq!(read("\"a\""), Ok(Prompts::One(text("a"))));
    assert_eq!(read("[1, 2]"), Ok(Prompts::One(Prompt::Ids(vec![1, 2]))));
    assert_eq!(
        read("[\"a\", \"b\"]"),
        Ok(Prompts::Many(vec![text("a"), text("b")]))
    );
    assert_eq!(
        read("[[1], [2, 3]]"),
        Ok(Prompts::Many(vec![
            Prompt::Ids(vec![1]),
            Prompt::Ids(vec![2, 3])
        ]))
    );
}

#[test]
fn mixtures_and_impossible_ids_are_refused() {
    let refused = |json| read(json).unwrap_err();
    assert!(refused("[1, \"a\"]").contains("but not both"));
    assert!(refused("[\"a\", 1]").contains("but not both"));
    assert!(refused("[-1]").contains("token id -1 is negative"));
    assert!(refused("[4294967296]").contains("does not fit 32 bits"));
    assert!(refused("{}").contains("expected a string, a list of token ids"));
}
