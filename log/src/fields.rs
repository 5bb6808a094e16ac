//! Fields of an event, with their control characters escaped: what clients and peers send neither begins a line of its own nor
//! speaks to a terminal, wherever it is logged.

use std::fmt::{self, Debug, Write};
use tracing::field::Field;
use tracing_subscriber::fmt::format::Writer;

/// Passes on what is written to it, but for control characters, which it writes as Rust does.
struct Escaped<W>(W);

/// Writes a field as `name=value`, and the message without its name.
pub(crate) fn write(to: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> fmt::Result {
    if field.name() != "message" {
        write!(to, "{field}=")?;
    }
    write!(Escaped(to), "{value:?}")
}

impl<W: Write> Write for Escaped<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(char::is_control) {
            let (plain, from) = rest.split_at(at);
            self.0.write_str(plain)?;
            let mut chars = from.chars();
            if let Some(control) = chars.next() {
                write!(self.0, "{}", control.escape_default())?;
            }
            rest = chars.as_str();
        }
        self.0.write_str(rest)
    }
}

#[cfg(test)]
mod tests {
    //! Facts about what a line shows of what others sent.

    use parking_lot::Mutex;
    use std::io::{self, Write};
    use std::sync::Arc;
    use tracing_subscriber::field::MakeExt;
    use tracing_subscriber::fmt::format::debug_fn;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn control_characters_are_escaped_wherever_they_are_logged() {
        let lines = Lines::default();
        let to = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .without_time()
            .fmt_fields(debug_fn(super::write).delimited(" "))
            .with_writer(move || to.clone());
        let sent = "a\n2026-01-01 ERROR forged \u{1b}[2Jü\u{9b}";
        tracing::subscriber::with_default(subscriber.finish(), || {
            tracing::warn!(session = %sent, quoted = sent, number = 3, "closed {sent}");
        });
        let lines = lines.0.lock().clone();
        let shown = r"a\n2026-01-01 ERROR forged \u{1b}[2Jü\u{9b}";
        assert_eq!(
            String::from_utf8(lines).unwrap(),
            format!(
                " WARN pd_log::fields::tests: closed {shown} session={shown} quoted=\"{shown}\" number=3\n"
            )
        );
    }
}
