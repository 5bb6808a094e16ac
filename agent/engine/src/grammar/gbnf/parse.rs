//! The text of a GBNF grammar to its rules, as llama.cpp and xgrammar write them.

/// One rule, `name ::= body`.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) name: String,
    pub(super) body: Node,
}

#[derive(Debug)]
pub(super) enum Node {
    Text(String),
    /// A character of these ranges, both ends included, or of all others.
    Class {
        is_negated: bool,
        ranges: Vec<(char, char)>,
    },
    /// Any character.
    Any,
    Rule(String),
    /// One after another.
    All(Vec<Node>),
    Either(Vec<Node>),
    /// From so many times to so many, or without an end.
    Repeat(Box<Node>, u32, Option<u32>),
}

struct Parser<'a> {
    rest: &'a str,
    line: usize,
    depth: usize,
}

const DEPTH_MAX: usize = 64;
const REPEATS_MAX: u32 = 1 << 20;

/// # Errors
/// Says what is wrong in which line.
pub(super) fn parse(text: &str) -> Result<Vec<Rule>, String> {
    let mut parser = Parser {
        rest: text,
        line: 1,
        depth: 0,
    };
    let rules = parser.rules();
    rules.map_err(|problem| format!("line {}: {problem}", parser.line))
}

// === impl Parser ===

impl<'a> Parser<'a> {
    fn rules(&mut self) -> Result<Vec<Rule>, String> {
        let mut rules = Vec::new();
        self.skip_space();
        while !self.rest.is_empty() {
            let name = self.name().ok_or("a rule begins with its name")?.to_owned();
            self.skip_space();
            if !self.eat("::=") {
                return Err(format!("::= is missing after {name:.100}"));
            }
            let body = self.either()?;
            if !self.rest.is_empty() && !self.is_at_rule() {
                return Err(self.unexpected());
            }
            rules.push(Rule { name, body });
        }
        Ok(rules)
    }

    fn either(&mut self) -> Result<Node, String> {
        let mut options = vec![self.all()?];
        while self.eat("|") {
            options.push(self.all()?);
        }
        Ok(match options.len() {
            1 => options.remove(0),
            _ => Node::Either(options),
        })
    }

    fn all(&mut self) -> Result<Node, String> {
        let mut nodes = Vec::new();
        loop {
            self.skip_space();
            let Some(next) = self.rest.chars().next() else {
                break;
            };
            let node = match next {
                '|' | ')' => break,
                '*' | '+' | '?' | '{' => {
                    let repeated = nodes.pop();
                    let is_one = |node: &Node| !matches!(node, Node::Repeat(..));
                    let repeated = repeated.filter(is_one).ok_or_else(|| self.unexpected())?;
                    let (min, max) = self.times()?;
                    Node::Repeat(Box::new(repeated), min, max)
                }
                '"' => self.text()?,
                '[' => self.class()?,
                '.' => {
                    self.eat(".");
                    Node::Any
                }
                '(' => self.group()?,
                _ if self.is_at_rule() => break,
                _ => {
                    let name = self.name().map(str::to_owned);
                    Node::Rule(name.ok_or_else(|| self.unexpected())?)
                }
            };
            nodes.push(node);
        }
        Ok(match nodes.len() {
            1 => nodes.remove(0),
            _ => Node::All(nodes),
        })
    }

    fn group(&mut self) -> Result<Node, String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(format!("groups lie more than {DEPTH_MAX} deep"));
        }
        self.eat("(");
        let node = self.either()?;
        if !self.eat(")") {
            return Err(") is missing".to_owned());
        }
        self.depth -= 1;
        Ok(node)
    }

    fn text(&mut self) -> Result<Node, String> {
        self.eat("\"");
        let mut text = String::new();
        while !self.eat("\"") {
            text.push(self.letter("\"")?);
        }
        Ok(Node::Text(text))
    }

    fn class(&mut self) -> Result<Node, String> {
        self.eat("[");
        let is_negated = self.eat("^");
        let mut ranges = Vec::new();
        while !self.eat("]") {
            let from = self.letter("]")?;
            let is_range = self.rest.starts_with('-') && !self.rest.starts_with("-]");
            let to = if is_range {
                self.eat("-");
                self.letter("]")?
            } else {
                from
            };
            if from > to {
                return Err(format!("the range {from:?} to {to:?} is empty"));
            }
            ranges.push((from, to));
        }
        if ranges.is_empty() {
            return Err("a class has no character".to_owned());
        }
        Ok(Node::Class { is_negated, ranges })
    }

    /// A character of a text or a class, which `end` closes.
    fn letter(&mut self, end: &str) -> Result<char, String> {
        let letter = self.next().ok_or_else(|| format!("{end} is missing"))?;
        match letter {
            '\n' => Err(format!("{end} is missing")),
            '\\' => self.escaped(),
            _ => Ok(letter),
        }
    }

    fn escaped(&mut self) -> Result<char, String> {
        let letter = self.next().ok_or("a backslash stands at the end")?;
        let digits = match letter {
            'n' => return Ok('\n'),
            'r' => return Ok('\r'),
            't' => return Ok('\t'),
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ if letter.is_ascii_punctuation() => return Ok(letter),
            _ => return Err(format!("\\{letter} is unknown")),
        };
        let code = self.rest.get(..digits);
        let code = code.and_then(|code| u32::from_str_radix(code, 16).ok());
        let escaped = code.and_then(char::from_u32);
        let escaped = escaped.ok_or_else(|| {
            format!("\\{letter} needs {digits} hexadecimal digits of a character")
        })?;
        self.rest = &self.rest[digits..];
        Ok(escaped)
    }

    fn times(&mut self) -> Result<(u32, Option<u32>), String> {
        for (sign, times) in [("*", (0, None)), ("+", (1, None)), ("?", (0, Some(1)))] {
            if self.eat(sign) {
                return Ok(times);
            }
        }
        self.eat("{");
        let min = self.number()?;
        let max = if self.eat(",") { self.number()? } else { min };
        if !self.eat("}") || min.is_none() && max.is_none() {
            return Err("a repetition is {2}, {2,}, {,3} or {2,3}".to_owned());
        }
        let min = min.unwrap_or(0);
        if max.is_some_and(|max| max < min) {
            return Err("a repetition ends before it begins".to_owned());
        }
        Ok((min, max))
    }

    fn number(&mut self) -> Result<Option<u32>, String> {
        self.skip_space();
        let len = self.rest.bytes().take_while(u8::is_ascii_digit).count();
        let (digits, rest) = self.rest.split_at(len);
        self.rest = rest;
        self.skip_space();
        if digits.is_empty() {
            return Ok(None);
        }
        let number = digits.parse().ok().filter(|number| *number <= REPEATS_MAX);
        let number = number.ok_or_else(|| format!("repeat at most {REPEATS_MAX} times"))?;
        Ok(Some(number))
    }

    fn name(&mut self) -> Option<&'a str> {
        let is_part = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        let len = self.rest.bytes().take_while(is_part).count();
        let begins = self
            .rest
            .starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        let (name, rest) = self.rest.split_at(len);
        begins.then(|| {
            self.rest = rest;
            name
        })
    }

    /// Whether the next rule begins here.
    fn is_at_rule(&self) -> bool {
        let mut ahead = Parser { ..*self };
        ahead.name().is_some() && {
            ahead.skip_space();
            ahead.rest.starts_with("::=")
        }
    }

    fn skip_space(&mut self) {
        loop {
            let rest = self.rest.trim_start();
            let skipped = &self.rest[..self.rest.len() - rest.len()];
            self.line += skipped.matches('\n').count();
            self.rest = rest;
            if !rest.starts_with('#') {
                return;
            }
            self.rest = &rest[rest.find('\n').unwrap_or(rest.len())..];
        }
    }

    fn eat(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn next(&mut self) -> Option<char> {
        let mut letters = self.rest.chars();
        let next = letters.next();
        self.rest = letters.as_str();
        next
    }

    fn unexpected(&self) -> String {
        match self.rest.chars().next() {
            Some(letter) => format!("{letter:?} is not expected here"),
            None => "the end is not expected here".to_owned(),
        }
    }
}
