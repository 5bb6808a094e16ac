//! Facts about the text of a key file in a rotation.

use super::*;

const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
const C: &str = "cccccccccccccccccccccccccccccccc";

fn id(key: &str) -> String {
    ids(key.as_bytes()).pop().expect("a key")
}

#[test]
fn a_key_is_added_moved_first_and_left_alone_and_comments_stay() {
    let text = format!("# ours\n{A}\n\n{B}");
    assert_eq!(ids(text.as_bytes()), [id(A), id(B)]);
    let added = with_last(text.as_bytes(), C);
    assert_eq!(added, format!("# ours\n{A}\n\n{B}\n{C}\n").as_bytes());
    let moved = with_first(&added, &id(C));
    assert_eq!(moved, format!("{C}\n# ours\n{A}\n\n{B}\n").as_bytes());
    assert_eq!(ids(&moved), [id(C), id(A), id(B)]);
    let only = with_only(&moved, &id(C));
    assert_eq!(only, format!("{C}\n# ours\n\n").as_bytes());
    assert_eq!(ids(&only), [id(C)]);
    assert_eq!(ids(b"short"), Vec::<String>::new());
}
