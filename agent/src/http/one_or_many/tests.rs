//! Shapes that `OneOrMany` accepts, and its errors for others.

use super::OneOrMany::{self, Many, One};

fn read<T: serde::de::DeserializeOwned>(json: &str) -> Result<OneOrMany<T>, String> {
    serde_json::from_str(json).map_err(|why| why.to_string())
}

#[test]
fn one_value_or_a_list_is_read() {
    assert_eq!(read("7"), Ok(One(7_u64)));
    assert_eq!(read("[7, 8]"), Ok(Many(vec![7_u64, 8])));
    assert_eq!(read("\"a\\n\""), Ok(One("a\n".to_owned())));
}

#[test]
fn another_type_is_refused_in_the_words_of_the_inner_type() {
    let why = read::<String>("5").unwrap_err();
    assert!(
        why.contains("invalid type: integer `5`, expected a string"),
        "{why}"
    );
    let why = read::<u64>("[1, -2]").unwrap_err();
    assert!(
        why.contains("invalid value: integer `-2`, expected u64"),
        "{why}"
    );
}
