//! Takes answers apart for `make peers-answers`: a JSON object a line, `{"reasoning": FORM, "tools": FORM, "schemas":
//! {TOOL: SCHEMA}, "pieces": [TEXT, …]}` on stdin becomes the answer that the pieces join to, as one on stdout.

#![allow(clippy::unwrap_used, reason = "a check may simply stop")]

use pd_answers::{Answer, AnswerReader, Call, Prompt, ToolTypes};
use serde_json::{Value, json};
use std::io::{BufRead, BufWriter, Write};

fn main() -> std::io::Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    for line in std::io::stdin().lock().lines() {
        let given: Value = serde_json::from_str(&line?).unwrap();
        writeln!(out, "{}", as_json(&take_apart(&given)))?;
    }
    out.flush()
}

fn take_apart(given: &Value) -> Answer {
    let form = |key: &str| given[key].as_str();
    let schemas = given["schemas"].as_object().unwrap();
    let mut reader = AnswerReader::new(
        form("reasoning").map(|name| name.parse().unwrap()),
        form("tools").map(|name| name.parse().unwrap()),
        ToolTypes::new(schemas.iter().map(|(tool, schema)| (tool.as_str(), schema))),
        Prompt::Opened(""),
    );
    let mut pieces = Vec::new();
    for text in given["pieces"].as_array().unwrap() {
        reader.push(text.as_str().unwrap(), &mut pieces);
    }
    reader.end(&mut pieces);
    pieces.into_iter().collect()
}

fn as_json(answer: &Answer) -> Value {
    let call = |call: &Call| json!({"name": call.name, "arguments": call.arguments});
    let calls: Vec<_> = answer.calls.iter().map(call).collect();
    json!({"reasoning": answer.reasoning, "text": answer.text, "calls": calls})
}
