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

/// A token's log probabilities in two answers.
struct Difference {
    answer: usize,
    at: usize,
    got: f64,
    expected: f64,
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
    let mut largest = 0f64;
    for difference in differences(got, expected, key)? {
        let size = difference.size();
        let Difference {
            answer,
            at,
            got,
            expected,
        } = difference;
        ensure!(
            size <= bound,
            "answer {answer}: {key} {at} is {got}, {size:.1e} from {expected}; the bound is {bound:e}"
        );
        largest = largest.max(size);
    }
    Ok(largest)
}

/// What half of the log probabilities under `key` of `meta_info` differ by at most.
///
/// # Errors
/// When they are of different tokens, or there are none, or that is more than `bound`.
pub(crate) fn half_close_logprobs(
    got: &[Value],
    expected: &[Value],
    key: &str,
    bound: f64,
) -> Result<f64> {
    let differences = differences(got, expected, key)?;
    let mut sizes: Vec<f64> = differences.iter().map(Difference::size).collect();
    sizes.sort_by(f64::total_cmp);
    let median = sizes[sizes.len() / 2];
    ensure!(
        median <= bound,
        "half of {} {key} are off by {median:.1e} or more; the bound is {bound:e}",
        sizes.len()
    );
    Ok(median)
}

/// # Errors
/// When log probabilities are of different tokens, or there are none.
fn differences(got: &[Value], expected: &[Value], key: &str) -> Result<Vec<Difference>> {
    let mut found = Vec::new();
    for (answer, (got, expected)) in pairs(got, expected)?.into_iter().enumerate() {
        let (got, expected) = (logprobs(got, key)?, logprobs(expected, key)?);
        ensure!(
            got.len() == expected.len(),
            "answer {answer}: {} {key} beside {}",
            got.len(),
            expected.len()
        );
        for (at, (got, expected)) in got.into_iter().zip(expected).enumerate() {
            ensure!(
                got.1 == expected.1,
                "answer {answer}: {key} {at} is of another token"
            );
            match (got.0, expected.0) {
                // The first token of a prompt follows nothing.
                (None, None) if at == 0 => {}
                (Some(got), Some(expected)) => found.push(Difference {
                    answer,
                    at,
                    got,
                    expected,
                }),
                _ => anyhow::bail!("answer {answer}: {key} {at} is only in one answer"),
            }
        }
    }
    ensure!(!found.is_empty(), "there are no {key}");
    Ok(found)
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

// === impl Difference ===

impl Difference {
    fn size(&self) -> f64 {
        (self.got - self.expected).abs()
    }
}

#[cfg(test)]
mod tests;
