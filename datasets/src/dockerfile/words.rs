//! Words of an instruction: quotes, escapes, and variables replaced.
//!
//! Source: the Dockerfile reference, "Environment replacement".

use std::collections::BTreeMap;

/// How deep `${A:-${B:-…}}` may be nested.
const MAX_DEPTH: u32 = 32;

/// Splits into words and replaces variables. Single quotes keep everything; double quotes keep blanks.
///
/// # Errors
/// An unknown modifier or an unclosed quote, in words.
pub(super) fn expand_words(
    text: &str,
    escape: char,
    variables: &BTreeMap<String, String>,
) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut scanner = Scanner { chars: text.chars().collect(), at: 0, depth: 0, escape, variables };
    loop {
        scanner.skip_blanks();
        if scanner.peek().is_none() {
            return Ok(words);
        }
        words.push(scanner.word(char::is_whitespace)?);
    }
}

/// Replaces variables and quotes in the whole text, as one word with its blanks.
///
/// # Errors
/// As [`expand_words`].
pub(super) fn expand(text: &str, escape: char, variables: &BTreeMap<String, String>) -> Result<String, String> {
    Scanner { chars: text.chars().collect(), at: 0, depth: 0, escape, variables }.word(|_| false)
}

struct Scanner<'a> {
    chars: Vec<char>,
    at: usize,
    /// How many `${` are open.
    depth: u32,
    escape: char,
    variables: &'a BTreeMap<String, String>,
}

impl Scanner<'_> {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += 1;
        Some(c)
    }

    fn skip_blanks(&mut self) {
        while self.peek().is_some_and(char::is_whitespace) {
            self.at += 1;
        }
    }

    fn word(&mut self, ends: fn(char) -> bool) -> Result<String, String> {
        let mut out = String::new();
        while let Some(c) = self.peek() {
            if ends(c) {
                break;
            }
            self.at += 1;
            match c {
                '\'' => self.single_quoted(&mut out)?,
                '"' => self.double_quoted(&mut out)?,
                '$' => self.variable(&mut out)?,
                c if c == self.escape => out.extend(self.next()),
                c => out.push(c),
            }
        }
        Ok(out)
    }

    fn single_quoted(&mut self, out: &mut String) -> Result<(), String> {
        loop {
            match self.next().ok_or("a single quote is not closed")? {
                '\'' => return Ok(()),
                c => out.push(c),
            }
        }
    }

    fn double_quoted(&mut self, out: &mut String) -> Result<(), String> {
        loop {
            match self.next().ok_or("a double quote is not closed")? {
                '"' => return Ok(()),
                '$' => self.variable(out)?,
                c if c == self.escape => match self.next().ok_or("a double quote is not closed")? {
                    quoted if matches!(quoted, '"' | '$') || quoted == self.escape => out.push(quoted),
                    other => out.extend([c, other]),
                },
                c => out.push(c),
            }
        }
    }

    fn name(&mut self) -> String {
        let start = self.at;
        while self.peek().is_some_and(|c| c.is_ascii_alphanumeric() || c == '_') {
            self.at += 1;
        }
        self.chars.get(start..self.at).unwrap_or_default().iter().collect()
    }

    /// After a `$`.
    fn variable(&mut self, out: &mut String) -> Result<(), String> {
        if self.peek() != Some('{') {
            let name = self.name();
            match self.variables.get(&name) {
                _ if name.is_empty() => out.push('$'),
                Some(value) => out.push_str(value),
                None => {}
            }
            return Ok(());
        }
        self.at += 1;
        let name = self.name();
        let value = self.variables.get(&name).cloned();
        let colon = self.peek() == Some(':');
        if colon {
            self.at += 1;
        }
        let set = value.as_ref().is_some_and(|value| !(colon && value.is_empty()));
        let operator = self.next().ok_or("`${` is not closed")?;
        match operator {
            '}' if !colon && !name.is_empty() => {
                out.push_str(&value.unwrap_or_default());
                return Ok(());
            }
            '-' | '+' | '?' => {}
            _ => return Err(format!("the substitution `${{{name}{operator}…}}` is not supported")),
        }
        if self.depth == MAX_DEPTH {
            return Err("substitutions are nested too deeply".to_owned());
        }
        self.depth += 1;
        let other = self.word(|c| c == '}')?;
        self.depth -= 1;
        self.next().ok_or("`${` is not closed")?;
        match (operator, set) {
            ('-', true) | ('?', true) => out.push_str(&value.unwrap_or_default()),
            ('-', false) | ('+', true) => out.push_str(&other),
            ('+', false) => {}
            _ => return Err(format!("the variable {name} is required: {other}")),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn expanded(text: &str) -> String {
        let variables = [("A", "1"), ("EMPTY", ""), ("SPACE", "x y")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        expand(text, '\\', &BTreeMap::from(variables)).unwrap()
    }

    #[test]
    fn variables_are_replaced() {
        assert_eq!(expanded("$A-${A}-$NONE-$"), "1-1--$");
        assert_eq!(expanded("${NONE:-d}${EMPTY:-e}${EMPTY-f}${A:-g}"), "de1");
        assert_eq!(expanded("${A:+set}${EMPTY:+no}${NONE+no}"), "set");
        assert_eq!(expanded("${NONE:-${A}/$A}"), "1/1");
        assert_eq!(expanded(r"\$A '$A' "), "$A $A ");
    }

    #[test]
    fn quotes_keep_blanks() {
        let none = BTreeMap::new();
        let words = expand_words(r#"a="b c" d\ e 'f  g' "\"h\n""#, '\\', &none).unwrap();
        assert_eq!(words, ["a=b c", "d e", "f  g", "\"h\\n"]);
        assert!(expand_words("'a", '\\', &none).is_err());
        assert!(expand_words("\"a", '\\', &none).is_err());
        assert!(expand("${A", '\\', &none).is_err());
        assert!(expand("${A#b}", '\\', &none).is_err());
        assert!(expand(&"${A:-".repeat(100_000), '\\', &none).is_err());
    }

    #[test]
    fn a_replaced_variable_is_not_split() {
        let variables = BTreeMap::from([("SPACE".to_owned(), "x y".to_owned())]);
        assert_eq!(expand_words("$SPACE z", '\\', &variables).unwrap(), ["x y", "z"]);
    }
}
