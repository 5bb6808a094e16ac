//! Facts about lines.

use super::*;

#[test]
fn lines_are_whole_however_they_arrive() {
    let mut lines = Lines::default();
    assert_eq!(lines.push(b"one\ntw"), vec![b"one".to_vec()]);
    assert_eq!(
        lines.push(b"o\n\nthree"),
        vec![b"two".to_vec(), b"".to_vec()]
    );
    assert_eq!(lines.rest(), Some(b"three".to_vec()));
}

#[test]
fn an_endless_line_is_broken() {
    let mut lines = Lines::default();
    let broken = lines.push(&vec![b'x'; LINE_BYTES_MAX + 1]);
    assert_eq!(broken.len(), 1);
    assert_eq!(lines.rest(), Some(b"x".to_vec()));
}

#[test]
fn names_are_coloured_only_for_a_terminal() {
    assert_eq!(
        Console {
            colour: false,
            hints: false,
        }
        .prefix("tiny-decode-0-1"),
        "tiny-decode-0-1 | "
    );
    assert!(
        Console {
            colour: true,
            hints: false,
        }
        .prefix("tiny-decode-0-1")
        .starts_with("\x1b[")
    );
}
