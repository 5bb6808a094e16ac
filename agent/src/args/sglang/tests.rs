//! The table against SGLang's own list of options, and what a user reads.

use super::*;
use crate::args::Args;
use clap::{CommandFactory, Parser};
use std::collections::{BTreeMap, BTreeSet};

/// Every option of SGLang 0.5.23's server, with `=` for a value, `=?` for one or none, `=*` for
/// several. Recorded from its parser.
const OPTIONS: &str = include_str!("../testdata/sglang-0.5.23.txt");

fn parse(flags: &str) -> Result<Args, clap::Error> {
    let words = ["pd-agent", "--model-path", "m"].into_iter();
    Args::try_parse_from(words.chain(flags.split_whitespace()))
}

fn broken(flags: &str) -> Vec<String> {
    let rules = parse(flags).unwrap().broken_rules();
    rules.iter().map(ToString::to_string).collect()
}

fn words(text: &str) -> BTreeMap<&str, Option<&str>> {
    let words = text.split_whitespace();
    words
        .map(|word| {
            let (name, values) = word.split_once('=').unzip();
            (name.unwrap_or(word), values)
        })
        .collect()
}

#[test]
fn every_option_of_sglang_is_a_flag_and_takes_as_many_values() {
    let command = Args::command();
    let mut flags = BTreeMap::new();
    for arg in command.get_arguments() {
        let names = arg.get_long_and_visible_aliases().unwrap_or_default();
        let hidden = arg.get_all_aliases().unwrap_or_default();
        for name in names.into_iter().chain(hidden) {
            flags.insert(name.to_owned(), arg.clone());
        }
    }
    let options = words(OPTIONS);
    assert_eq!(options.len(), 559);
    for (name, values) in options {
        let Some(arg) = flags.get(name) else {
            panic!("--{name} of SGLang is in no group");
        };
        assert_eq!(
            arg.get_action().takes_values(),
            values.is_some(),
            "--{name}: SGLang's takes {values:?}"
        );
    }
}

#[test]
fn every_flag_of_the_table_parses_and_has_one_meaning() {
    let mut seen = BTreeSet::new();
    for group in groups() {
        let mut line = String::new();
        for (name, values) in group.flags() {
            assert!(seen.insert(name), "--{name} is in two groups");
            let given = match values {
                None => format!(" --{name}"),
                Some("*") => format!(" --{name} 1 2 4"),
                Some(_) => format!(" --{name} 1"),
            };
            line.push_str(&given);
        }
        let args = parse(&line).unwrap_or_else(|why| panic!("{line}: {why}"));
        let given: Vec<_> = args.sglang.given.iter().map(|given| given.flag).collect();
        let flags: Vec<_> = group.flags().map(|(name, _)| name).collect();
        assert_eq!(given, flags);
        let refusals = usize::from(group.meaning.refusal(Some("1")).is_some());
        assert_eq!(args.broken_rules().len(), refusals, "{line}");
    }
}

#[test]
fn a_refusal_is_one_sentence_that_names_its_flags_and_what_to_do() {
    for group in groups() {
        let Meaning::Refused(instead) = group.meaning else {
            continue;
        };
        let (name, values) = group.flags().next().unwrap();
        let given = format!("--{name}{}", values.map_or("", |_| " x"));
        assert_eq!(broken(&given), [format!("--{name}: {instead}")]);
        assert!(instead.contains(';'), "{instead}: no advice");
    }
    assert_eq!(
        broken("--enable-lora --lora-paths a=/x b=/y --lora-backend triton"),
        [
            "--enable-lora, --lora-paths: LoRA adapters are not applied; serve weights that they are \
          merged into, and leave it out"
        ]
    );
}

#[test]
fn a_value_that_is_so_anyhow_starts_and_another_does_not() {
    let fine = "--tp 1 --ep-size 1 --nnodes 1 --node-rank 0 --load-format auto --tokenizer-mode slow \
                --quantization gguf --json-model-override-args {}";
    assert_eq!(broken(fine), [""; 0]);
    assert_eq!(
        broken("--node-rank 1"),
        ["--node-rank 1: there is one node, of rank 0; leave it out"]
    );
    assert!(broken("--quantization fp8")[0].starts_with("--quantization fp8: weights are never"));
    assert_eq!(
        broken("--tp 2 --tp 1"),
        [""; 0],
        "the last of a flag counts"
    );
}

#[test]
fn a_secret_is_not_repeated() {
    let message = &broken("--ssl-keyfile-password hush")[0];
    assert!(message.starts_with("--ssl-keyfile-password: workers speak plain HTTP"));
    assert!(!message.contains("hush"));
}

#[test]
fn an_unknown_flag_ends_the_start_with_the_likeliest_one() {
    let refused = parse("--attention-backnd triton").unwrap_err().to_string();
    assert!(refused.contains("'--attention-backend'"), "{refused}");
}

#[test]
fn the_help_has_every_flag_with_its_meaning() {
    let help = SglangArgs::help();
    for group in groups() {
        assert!(help.contains(&group.meaning.heading()));
        for (name, _) in group.flags() {
            assert!(help.contains(&format!("--{name}")));
        }
    }
}
