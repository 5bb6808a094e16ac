//! Any text as an answer in any form: however it is cut, it joins to the same, and no byte of a text without marks is lost.

use crate::{Answer, AnswerReader, Piece, Prompt, ReasoningForm, ToolForm, ToolTypes};
use pd_fuzz::{Memory, fuzz};
use serde_json::json;

const MEMORY: Memory = Memory {
    base: 64 << 10,
    per_byte: 256,
};

pub(crate) fn read<'a>(
    reasoning: Option<ReasoningForm>,
    tools: Option<ToolForm>,
    types: &ToolTypes,
    parts: impl IntoIterator<Item = &'a str>,
) -> Answer {
    let mut reader = AnswerReader::new(reasoning, tools, types.clone(), Prompt::Opened(""));
    let mut pieces = Vec::new();
    let mut answer = Answer::default();
    for part in parts {
        reader.push(part, &mut pieces);
        pieces.drain(..).for_each(|piece| answer.push(piece));
    }
    reader.end(&mut pieces);
    pieces.drain(..).for_each(|piece: Piece| answer.push(piece));
    answer
}

#[test]
fn answer() {
    fuzz!("answer", MEMORY, |bytes| {
        let Some((&form, text)) = bytes.split_first() else {
            return;
        };
        let text = String::from_utf8_lossy(text);
        let form = usize::from(form);
        let tools = ToolForm::ALL.get(form % (ToolForm::ALL.len() + 1)).copied();
        let reasoning = form / (ToolForm::ALL.len() + 1);
        let reasoning = ReasoningForm::ALL
            .get(reasoning % (ReasoningForm::ALL.len() + 1))
            .copied();
        let schema = json!({"properties": {"a": {}, "b": {"type": ["string", "null"]}}});
        let types = ToolTypes::new([("f", &schema)]);
        let whole = read(reasoning, tools, &types, [&*text]);
        let cut = read(reasoning, tools, &types, text.split_inclusive(|_| true));
        assert_eq!(cut, whole, "{reasoning:?} {tools:?}");
    });
}
