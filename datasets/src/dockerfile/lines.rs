//! A Dockerfile as a list of instructions: parser directives, comments, continuation lines and here-documents resolved.
//!
//! Source: the Dockerfile reference, "Format", "Parser directives", "Here-documents".

/// One instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Instruction {
    /// Upper-case name.
    pub(super) name: String,
    /// Everything after the name, lines joined.
    pub(super) rest: String,
    /// Line on which it begins, from 1.
    pub(super) line: u32,
    /// Its here-documents, in order; their bodies are left out of `rest`.
    pub(super) heredocs: Vec<Heredoc>,
}

/// One here-document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Heredoc {
    name: String,
    strip_tabs: bool,
    /// The word that opens it, such as `<<-EOF`.
    pub(super) opener: String,
    /// The lines between the opener and the end, each with its line feed.
    pub(super) body: String,
}

/// The instructions and the escape character.
pub(super) struct Parsed {
    pub(super) instructions: Vec<Instruction>,
    pub(super) escape: char,
}

pub(super) fn parse(text: &str) -> Parsed {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let escape = escape_directive(text);
    let mut instructions = Vec::new();
    let mut lines = (1u32..).zip(text.lines());
    while let Some((line, first)) = lines.next() {
        if is_comment_or_blank(first) {
            continue;
        }
        let mut joined = String::new();
        let mut current = first;
        while let Some(head) = continued(current, escape) {
            joined.push_str(head);
            // Comments and blank lines inside an instruction are dropped.
            match lines.by_ref().find(|(_, next)| !is_comment_or_blank(next)) {
                Some((_, next)) => current = next,
                None => {
                    current = "";
                    break;
                }
            }
        }
        joined.push_str(current);
        let joined = joined.trim();
        let (name, rest) = joined.split_once(char::is_whitespace).unwrap_or((joined, ""));
        let name = name.to_ascii_uppercase();
        let mut heredocs = if takes_heredocs(&name) { heredocs(rest) } else { Vec::new() };
        for heredoc in &mut heredocs {
            // A body that never ends takes the rest of the file, as it would for the builder.
            while let Some((_, line)) = lines.next().filter(|(_, line)| !heredoc.is_end(line)) {
                heredoc.body.push_str(line);
                heredoc.body.push('\n');
            }
        }
        instructions.push(Instruction { name, rest: rest.trim().to_owned(), line, heredocs });
    }
    Parsed { instructions, escape }
}

/// The escape character that a parser directive sets. Directives come before anything else.
fn escape_directive(text: &str) -> char {
    for line in text.lines() {
        let Some((key, value)) = line.trim().strip_prefix('#').and_then(|directive| directive.split_once('=')) else {
            break;
        };
        let key = key.trim();
        if key.is_empty() || !key.chars().all(|c| c.is_ascii_alphanumeric()) {
            break;
        }
        if key.eq_ignore_ascii_case("escape") {
            return if value.trim() == "`" { '`' } else { '\\' };
        }
    }
    '\\'
}

fn is_comment_or_blank(line: &str) -> bool {
    let line = line.trim_start();
    line.is_empty() || line.starts_with('#')
}

/// The line without its continuation mark, if it has one. Blanks after the mark are allowed.
fn continued(line: &str, escape: char) -> Option<&str> {
    line.trim_end_matches([' ', '\t', '\r']).strip_suffix(escape)
}

fn takes_heredocs(name: &str) -> bool {
    matches!(name, "RUN" | "COPY" | "ADD")
}

impl Heredoc {
    /// The body as the program that reads it sees it.
    pub(super) fn text(&self) -> String {
        if !self.strip_tabs {
            return self.body.clone();
        }
        self.body.split_inclusive('\n').map(|line| line.trim_start_matches('\t')).collect()
    }

    /// Body and end line, as a shell wants them after the command.
    pub(super) fn for_shell(&self) -> String {
        format!("{}{}\n", self.body, self.name)
    }

    fn is_end(&self, line: &str) -> bool {
        let line = line.trim_end_matches('\r');
        let line = if self.strip_tabs { line.trim_start_matches('\t') } else { line };
        line == self.name
    }
}

/// The here-documents that a command opens: words such as `<<EOF`, `<<-"EOF"`, `3<<EOF`.
fn heredocs(rest: &str) -> Vec<Heredoc> {
    rest.split_whitespace()
        .filter_map(|word| {
            let after = word.trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix("<<")?;
            let (strip_tabs, after) = after.strip_prefix('-').map_or((false, after), |after| (true, after));
            let name: String = after
                .trim_start_matches(['"', '\''])
                .chars()
                .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
                .collect();
            let valid = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
            valid.then(|| Heredoc { name, strip_tabs, opener: word.to_owned(), body: String::new() })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn names_and_rests(text: &str) -> Vec<(String, String, u32)> {
        parse(text).instructions.into_iter().map(|i| (i.name, i.rest, i.line)).collect()
    }

    #[test]
    fn continuations_drop_comments_and_blank_lines() {
        let text = "# c\nFROM a\nrun one && \\  \n  # inside\n\n  two \\\n  three\nUSER x";
        let expected = [("FROM", "a", 2), ("RUN", "one &&   two   three", 3), ("USER", "x", 8)]
            .map(|(n, r, l)| (n.into(), r.into(), l));
        assert_eq!(names_and_rests(text), expected);
    }

    #[test]
    fn the_escape_directive_counts_only_at_the_top() {
        assert_eq!(parse("# syntax=docker/dockerfile:1\n# escape=`\nRUN a `\n b").instructions[0].rest, "a  b");
        assert_eq!(parse("# a comment\n# escape=`\nRUN a `\nUSER b").instructions.len(), 2);
    }

    #[test]
    fn bodies_of_heredocs_are_not_instructions() {
        let parsed = parse("RUN <<EOF cat\nWORKDIR /no\nEOF\nCOPY <<-'A' <<B /x/\nUSER no\n\tA\nB\nWORKDIR /yes");
        let seen: Vec<_> = parsed.instructions.iter().map(|i| (i.name.as_str(), i.heredocs.len())).collect();
        assert_eq!(seen, [("RUN", 1), ("COPY", 2), ("WORKDIR", 0)]);
        let [first, second] = &parsed.instructions[1].heredocs[..] else { panic!("two bodies") };
        assert_eq!((first.text().as_str(), second.text().as_str()), ("USER no\n", ""));
    }

    #[test]
    fn shifts_and_here_strings_are_no_heredocs() {
        let parsed = parse("RUN echo $((1 <<2)) && cat <<< word\nUSER x");
        assert_eq!(parsed.instructions.len(), 2);
        assert!(parsed.instructions[0].heredocs.is_empty());
    }
}
