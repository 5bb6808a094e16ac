//! GBNF, SGLang's `ebnf`, to the Lark of `llguidance`.
//!
//! GBNF speaks of characters. Lark cuts a text into lexemes first, each as long as it can be, which is something else:
//! `[a-z]+ "x"` would have no text. So a grammar without recursion becomes one lexeme, a regular expression; of one
//! with recursion each character is a lexeme, and none can be longer than another.

mod parse;

use super::notation::quoted;
use parse::{Node, Rule};
use std::collections::HashMap;
use std::fmt::Write;
use std::slice;

/// Writes rules as Lark. Those of GBNF have their places as numbers, and groups the numbers behind them.
struct Writer<'a> {
    places: HashMap<&'a str, usize>,
    is_regular: bool,
    /// Groups that have a number and are not written yet.
    groups: Vec<&'a Node>,
    next_group: usize,
}

/// Rules, and groups in them: the crate recurses along them.
const RULES_MAX: usize = 4096;

/// # Errors
/// Says what is wrong, and in which line or rule.
pub(super) fn to_lark(text: &str) -> Result<String, String> {
    let rules = parse::parse(text)?;
    let mut places = HashMap::new();
    for (place, rule) in rules.iter().enumerate() {
        if places.insert(rule.name.as_str(), place).is_some() {
            return Err(format!("the rule {:.100} is given twice", rule.name));
        }
    }
    let root = *places.get("root").ok_or("it has no rule root")?;
    let uses = uses(&rules, &places)?;
    let reached = reached(&uses, root);
    let mut writer = Writer {
        is_regular: !has_cycle(&uses, root),
        places,
        groups: Vec::new(),
        next_group: rules.len(),
    };
    let mut lark = format!("start: {}\n", writer.name(root));
    let mut written = 0;
    let mut to_do: Vec<(usize, &Node)> = reached
        .iter()
        .map(|place| (*place, &rules[*place].body))
        .collect();
    while let Some((number, node)) = to_do.pop() {
        written += 1;
        if written > RULES_MAX {
            return Err(format!("it has more than {RULES_MAX} rules and groups"));
        }
        let first = writer.next_group;
        let body = writer.body(node);
        let _ = writeln!(lark, "{}: {body}", writer.name(number));
        to_do.extend((first..).zip(writer.groups.drain(..)));
    }
    Ok(lark)
}

/// The rules that each uses.
fn uses(rules: &[Rule], places: &HashMap<&str, usize>) -> Result<Vec<Vec<usize>>, String> {
    let of_one = |rule: &Rule| {
        let mut names = Vec::new();
        names_in(&rule.body, &mut names);
        let place = |name: &str| {
            let place = places.get(name).copied();
            place.ok_or_else(|| {
                format!(
                    "the rule {name:.100}, which {:.100} uses, is not given",
                    rule.name
                )
            })
        };
        names.into_iter().map(place).collect()
    };
    rules.iter().map(of_one).collect()
}

fn names_in<'a>(node: &'a Node, names: &mut Vec<&'a str>) {
    match node {
        Node::Rule(name) => names.push(name),
        Node::All(nodes) | Node::Either(nodes) => {
            nodes.iter().for_each(|node| names_in(node, names));
        }
        Node::Repeat(node, ..) => names_in(node, names),
        Node::Text(_) | Node::Class { .. } | Node::Any => {}
    }
}

/// The rules that an answer may be of.
fn reached(uses: &[Vec<usize>], root: usize) -> Vec<usize> {
    let mut reached = vec![root];
    let mut seen = vec![false; uses.len()];
    seen[root] = true;
    let mut next = 0;
    while let Some(place) = reached.get(next) {
        for used in &uses[*place] {
            if !std::mem::replace(&mut seen[*used], true) {
                reached.push(*used);
            }
        }
        next += 1;
    }
    reached
}

/// Whether a rule that is reached uses itself: else all are left out, those first that use none that is left.
fn has_cycle(uses: &[Vec<usize>], root: usize) -> bool {
    let reached = reached(uses, root);
    let mut users = vec![Vec::new(); uses.len()];
    let mut left = vec![0; uses.len()];
    for place in &reached {
        left[*place] = uses[*place].len();
        for used in &uses[*place] {
            users[*used].push(*place);
        }
    }
    let mut free: Vec<_> = reached
        .iter()
        .copied()
        .filter(|place| left[*place] == 0)
        .collect();
    let mut out = 0;
    while let Some(place) = free.pop() {
        out += 1;
        for user in &users[place] {
            left[*user] -= 1;
            if left[*user] == 0 {
                free.push(*user);
            }
        }
    }
    out < reached.len()
}

// === impl Writer ===

impl<'a> Writer<'a> {
    fn name(&self, number: usize) -> String {
        if self.is_regular {
            format!("T{number}")
        } else {
            format!("r{number}")
        }
    }

    fn body(&mut self, node: &'a Node) -> String {
        let options = if let Node::Either(options) = node {
            options
        } else {
            slice::from_ref(node)
        };
        let options: Vec<_> = options.iter().map(|option| self.line(option)).collect();
        options.join(" | ")
    }

    fn line(&mut self, node: &'a Node) -> String {
        let nodes = if let Node::All(nodes) = node {
            nodes
        } else {
            slice::from_ref(node)
        };
        if nodes.is_empty() {
            return quoted("");
        }
        let items: Vec<_> = nodes.iter().map(|node| self.item(node)).collect();
        items.join(" ")
    }

    fn item(&mut self, node: &'a Node) -> String {
        if let Node::Text(text) = node {
            return self.text(text);
        }
        let Node::Repeat(node, min, max) = node else {
            return self.atom(node);
        };
        match (min, max) {
            (_, Some(0)) => quoted(""),
            (0, None) => format!("{}*", self.atom(node)),
            (1, None) => format!("{}+", self.atom(node)),
            (min, None) => format!("{}{{{min},}}", self.atom(node)),
            (min, Some(max)) => format!("{}{{{min},{max}}}", self.atom(node)),
        }
    }

    fn text(&self, text: &str) -> String {
        if self.is_regular || text.is_empty() {
            return quoted(text);
        }
        let letters = text.chars().map(|letter| quoted(&letter.to_string()));
        letters.collect::<Vec<_>>().join(" ")
    }

    /// As one part; what has several becomes a group.
    fn atom(&mut self, node: &'a Node) -> String {
        match node {
            Node::Text(text) if self.is_regular || text.chars().count() <= 1 => quoted(text),
            Node::Class { is_negated, ranges } => {
                let ranges = ranges.iter().map(|(from, to)| {
                    format!("\\u{{{:x}}}-\\u{{{:x}}}", u32::from(*from), u32::from(*to))
                });
                let sign = if *is_negated { "^" } else { "" };
                format!("/[{sign}{}]/", ranges.collect::<String>())
            }
            Node::Any => "/(?s:.)/".to_owned(),
            Node::Rule(name) => self.name(self.places[name.as_str()]),
            Node::Text(_) | Node::All(_) | Node::Either(_) | Node::Repeat(..) => {
                self.groups.push(node);
                self.next_group += 1;
                self.name(self.next_group - 1)
            }
        }
    }
}

#[cfg(test)]
mod tests;
