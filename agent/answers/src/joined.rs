//! Whole answers.

use crate::Piece;

/// What pieces join to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub reasoning: String,
    pub text: String,
    pub calls: Vec<Call>,
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub name: String,
    pub id: Option<String>,
    /// JSON, unless the answer ends within it.
    pub arguments: String,
}

// === impl Answer ===

impl Answer {
    /// # Panics
    /// Arguments belong to a call: they come behind one.
    pub fn push(&mut self, piece: Piece) {
        match piece {
            Piece::Reasoning(more) => self.reasoning.push_str(&more),
            Piece::Text(more) => self.text.push_str(&more),
            Piece::Call { name, id } => self.calls.push(Call {
                name,
                id,
                arguments: String::new(),
            }),
            Piece::Arguments(more) => {
                let call = self
                    .calls
                    .last_mut()
                    .expect("a call is before its arguments");
                call.arguments.push_str(&more);
            }
        }
    }
}

impl FromIterator<Piece> for Answer {
    fn from_iter<I: IntoIterator<Item = Piece>>(pieces: I) -> Self {
        let mut answer = Self::default();
        for piece in pieces {
            answer.push(piece);
        }
        answer
    }
}
