//! Answers of `/generate` held against others; each comparison fails rather than compare nothing.

use anyhow::{Context, Result, ensure};
use pd_e2e::prompts::essence;
use serde_json::Value;

/// Pairs of answers to the same requests.
///
/// # Errors
/// When there are none, or not as many of both.
fn pairs<'a>(got: &'a [Value], expected: &'a [Value]) -> Result<Vec<(&'a Value, &'a Value)>> {
    ensure!(
        got.len() == expected.len() && !got.is_empty(),
        "{} answers beside {}",
        got.len(),
        expected.len()
    );
    Ok(got.iter().zip(expected).collect())
}

/// The number of tokens, which are equal.
///
/// # Errors
/// The first answer with other tokens, or with none.
pub(crate) fn equal_tokens(got: &[Value], expected: &[Value]) -> Result<usize> {
    let mut count = 0;
    for (i, (got, expected)) in pairs(got, expected)?.into_iter().enumerate() {
        let ids = expected["output_ids"].as_array();
        let ids = ids
            .filter(|ids| !ids.is_empty())
            .with_context(|| format!("answer {i} has no tokens"))?;
        ensure!(
            got["output_ids"] == expected["output_ids"],
            "answer {i} has other tokens: {} instead of {}",
            got["output_ids"],
            expected["output_ids"]
        );
        count += ids.len();
    }
    Ok(count)
}

/// The number of tokens of answers whose tokens, texts and printed log probabilities are equal.
///
/// # Errors
/// The first answer that differs.
pub(crate) fn equal_bits(got: &[Value], expected: &[Value]) -> Result<usize> {
    let count = equal_tokens(got, expected)?;
    for (i, (got, expected)) in pairs(got, expected)?.into_iter().enumerate() {
        let (got, expected) = (essence(got), essence(expected));
        ensure!(
            expected["output_token_logprobs"].is_array(),
            "answer {i} has no log probabilities"
        );
        ensure!(got == expected, "answer {i} differs:\n {got}\n {expected}");
    }
    Ok(count)
}

/// The largest difference of two answers' log probabilities under `key` of `meta_info`.
///
/// # Errors
/// When they are of different tokens, or there are none, or they differ by more than `bound`.
pub(crate) fn close_logprobs(
    got: &[Value],
    expected: &[Value],
    key: &str,
    bound: f64,
) -> Result<f64> {
    let (mut largest, mut count) = (0f64, 0);
    for (i, (got, expected)) in pairs(got, expected)?.into_iter().enumerate() {
        let (got, expected) = (logprobs(got, key)?, logprobs(expected, key)?);
        ensure!(
            got.len() == expected.len(),
            "answer {i}: {} {key} beside {}",
            got.len(),
            expected.len()
        );
        for (at, (got, expected)) in got.into_iter().zip(expected).enumerate() {
            ensure!(
                got.1 == expected.1,
                "answer {i}: {key} {at} is of another token"
            );
            match (got.0, expected.0) {
                // The first token of a prompt follows nothing.
                (None, None) if at == 0 => {}
                (Some(got), Some(expected)) => {
                    let difference = (got - expected).abs();
                    ensure!(
                        difference <= bound,
                        "answer {i}: {key} {at} is {got}, {difference:.1e} from {expected}; the bound is {bound:e}"
                    );
                    largest = largest.max(difference);
                    count += 1;
                }
                _ => anyhow::bail!("answer {i}: {key} {at} is only in one answer"),
            }
        }
    }
    ensure!(count > 0, "there are no {key}");
    Ok(largest)
}

/// The magnitude of the least likely token.
///
/// # Errors
/// When there are none.
pub(crate) fn largest_logprob(answers: &[Value], key: &str) -> Result<f64> {
    let mut largest = 0f64;
    for answer in answers {
        let found = logprobs(answer, key)?
            .into_iter()
            .filter_map(|(logprob, _)| logprob);
        largest = found.map(f64::abs).fold(largest, f64::max);
    }
    ensure!(largest > 0.0, "there are no {key}");
    Ok(largest)
}

/// Log probability and token.
fn logprobs(answer: &Value, key: &str) -> Result<Vec<(Option<f64>, u64)>> {
    let list = answer["meta_info"][key].as_array();
    let list = list.with_context(|| format!("an answer has no {key}"))?;
    list.iter()
        .map(|entry| {
            let token = entry[1].as_u64();
            Ok((
                entry[0].as_f64(),
                token.with_context(|| format!("{key}: {entry}"))?,
            ))
        })
        .collect()
}

#[cfg(test)]
mod tests;
