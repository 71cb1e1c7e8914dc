//! Dockerfile text into instructions.

use super::words::split;

/// A Dockerfile that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("dockerfile parse error on line {line}: {why}")]
pub struct ParseError {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong.
    pub why: String,
}

/// The instructions in their order; the first that is no `ARG` is a `FROM`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dockerfile {
    /// In their order.
    pub steps: Vec<Step>,
}

/// An instruction and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Counted from 1.
    pub line: usize,
    /// Its first line, for the log.
    pub text: String,
    /// What it says.
    pub instruction: Instruction,
}

/// What a `RUN` executes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Run {
    /// A script for the shell.
    Shell(String),
    /// Program and arguments.
    Exec(Vec<String>),
}

/// An instruction. Variables are not replaced yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// A stage.
    From {
        /// Image, earlier stage, or `scratch`.
        image: String,
        /// After `AS`.
        name: Option<String>,
    },
    /// A command.
    Run(Run),
    /// `COPY` and `ADD`.
    Copy {
        /// Paths in the build context, globs allowed.
        sources: Vec<String>,
        /// Where to.
        destination: String,
        /// A stage or image to take them from.
        from: Option<String>,
        /// `--chown`.
        owner: Option<String>,
        /// `--chmod`.
        mode: Option<String>,
        /// The content, if it is written in the Dockerfile itself.
        inline: Option<String>,
    },
    /// Variables of this and later steps and of the image.
    Env(Vec<(String, String)>),
    /// A variable of the build.
    Arg(String, Option<String>),
    /// The directory of later steps.
    Workdir(String),
    /// The user of later steps.
    User(String),
    /// The shell of later `RUN`s.
    Shell(Vec<String>),
    /// What the image starts, or the arguments of its entry point.
    Cmd(Run),
    /// What the image starts, whatever its arguments.
    Entrypoint(Run),
    /// Says something about the image that does not matter to what is in it.
    Other(String),
}

impl Dockerfile {
    /// Parses a whole file.
    ///
    /// # Errors
    /// The first line that is no instruction.
    pub fn parse(text: &str) -> Result<Dockerfile, ParseError> {
        let mut lines = text.lines().enumerate();
        let mut steps = Vec::new();
        while let Some((at, first)) = lines.next() {
            if is_comment(first) || first.trim().is_empty() {
                continue;
            }
            let mut whole = first.trim().to_owned();
            // Comment lines between continued lines are left out.
            while let Some(start) = whole.strip_suffix('\\') {
                whole = start.to_owned();
                match lines.find(|(_, line)| !is_comment(line)) {
                    Some((_, next)) => whole.push_str(next.trim_end()),
                    None => break,
                }
            }
            let mut documents = Vec::new();
            for mark in heredocs(&whole) {
                let end = mark.trim_start_matches('-').trim_matches(['"', '\'']).to_owned();
                let body = lines.by_ref().map(|(_, line)| line);
                let body: Vec<&str> = body.take_while(|line| line.trim_start_matches('\t') != end).collect();
                documents.push((end, body.iter().map(|line| format!("{line}\n")).collect::<String>()));
            }
            let line = at + 1;
            let instruction = instruction(&whole, documents).map_err(|why| ParseError { line, why })?;
            let started = steps.iter().any(|step: &Step| matches!(step.instruction, Instruction::From { .. }));
            if !started && !matches!(instruction, Instruction::From { .. } | Instruction::Arg(..)) {
                return Err(ParseError { line, why: "no build stage in current context".into() });
            }
            steps.push(Step { line, text: whole, instruction });
        }
        if !steps.iter().any(|step| matches!(step.instruction, Instruction::From { .. })) {
            return Err(ParseError { line: 1, why: "file with no instructions".into() });
        }
        Ok(Dockerfile { steps })
    }
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with('#')
}

/// The marks of here-documents in a `RUN`, `COPY` or `ADD`.
fn heredocs(text: &str) -> Vec<&str> {
    let keyword = text.split_whitespace().next().unwrap_or_default().to_ascii_uppercase();
    if !["RUN", "COPY", "ADD"].contains(&keyword.as_str()) {
        return Vec::new();
    }
    let marks = text.split_whitespace().filter_map(|word| word.strip_prefix("<<"));
    let name = |mark: &&str| mark.trim_matches(['-', '"', '\'']).starts_with(|c: char| c.is_ascii_alphabetic());
    marks.filter(name).collect()
}

fn instruction(text: &str, documents: Vec<(String, String)>) -> Result<Instruction, String> {
    let (keyword, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let keyword = keyword.to_ascii_uppercase();
    let rest = rest.trim();
    let needs = |rest: &str| {
        if rest.is_empty() { Err(format!("{keyword} requires at least one argument")) } else { Ok(()) }
    };
    Ok(match keyword.as_str() {
        "FROM" => from(rest)?,
        "RUN" => {
            needs(rest)?;
            Instruction::Run(run(rest, documents))
        }
        "COPY" | "ADD" => copy(rest, documents, &keyword)?,
        "ENV" => Instruction::Env(pairs(rest).ok_or("ENV must have names and values")?),
        "ARG" => match rest.split_once('=') {
            Some((name, value)) => Instruction::Arg(name.into(), split(value).into_iter().next()),
            None => Instruction::Arg(rest.into(), None),
        },
        "WORKDIR" => {
            needs(rest)?;
            Instruction::Workdir(rest.into())
        }
        "USER" => {
            needs(rest)?;
            Instruction::User(rest.into())
        }
        "SHELL" => Instruction::Shell(serde_json::from_str(rest).map_err(|_| "SHELL requires the JSON form")?),
        "CMD" => Instruction::Cmd(run(rest, documents)),
        "ENTRYPOINT" => Instruction::Entrypoint(run(rest, documents)),
        "LABEL" | "EXPOSE" | "VOLUME" | "STOPSIGNAL" | "HEALTHCHECK" | "ONBUILD" | "MAINTAINER" => {
            Instruction::Other(keyword)
        }
        _ => return Err(format!("unknown instruction: {keyword}")),
    })
}

fn from(rest: &str) -> Result<Instruction, String> {
    let words: Vec<&str> = rest.split_whitespace().filter(|word| !word.starts_with("--")).collect();
    match words.as_slice() {
        [image] => Ok(Instruction::From { image: (*image).into(), name: None }),
        [image, keyword, name] if keyword.eq_ignore_ascii_case("as") => {
            Ok(Instruction::From { image: (*image).into(), name: Some((*name).into()) })
        }
        _ => Err("FROM requires either one or three arguments".into()),
    }
}

fn run(rest: &str, documents: Vec<(String, String)>) -> Run {
    let (flags, rest) = flags(rest);
    // Mounts and networks of builds do not change what a step does; `--security` neither.
    drop(flags);
    if let Ok(argv) = serde_json::from_str::<Vec<String>>(rest) {
        return Run::Exec(argv);
    }
    match documents.as_slice() {
        [(_, body)] if rest.starts_with("<<") && rest.split_whitespace().count() == 1 => Run::Shell(body.clone()),
        _ => Run::Shell(documents.iter().fold(rest.to_owned(), |text, (end, body)| format!("{text}\n{body}{end}\n"))),
    }
}

fn copy(rest: &str, documents: Vec<(String, String)>, keyword: &str) -> Result<Instruction, String> {
    let (flags, rest) = flags(rest);
    let flag = |name: &str| flags.iter().find_map(|flag| flag.strip_prefix(name).map(str::to_owned));
    let mut words = serde_json::from_str::<Vec<String>>(rest).unwrap_or_else(|_| split(rest));
    let destination = words.pop().filter(|_| !words.is_empty());
    let destination = destination.ok_or_else(|| format!("{keyword} requires at least two arguments"))?;
    Ok(Instruction::Copy {
        sources: words,
        destination,
        from: flag("--from="),
        owner: flag("--chown="),
        mode: flag("--chmod="),
        inline: documents.into_iter().next().map(|(_, body)| body),
    })
}

/// The `--flags` at the beginning, and the rest.
fn flags(mut rest: &str) -> (Vec<&str>, &str) {
    let mut flags = Vec::new();
    while rest.starts_with("--") {
        let (flag, tail) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        flags.push(flag);
        rest = tail.trim_start();
    }
    (flags, rest)
}

/// `NAME=value …`, or the old form `NAME value`.
fn pairs(rest: &str) -> Option<Vec<(String, String)>> {
    let words = split(rest);
    if words.first()?.contains('=') {
        return words
            .iter()
            .map(|word| word.split_once('=').map(|(name, value)| (name.into(), value.into())))
            .collect();
    }
    let (name, value) = rest.split_once(char::is_whitespace)?;
    Some(vec![(name.into(), value.trim().into())])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn instructions(text: &str) -> Vec<Instruction> {
        Dockerfile::parse(text).unwrap().steps.into_iter().map(|step| step.instruction).collect()
    }

    #[test]
    fn continued_lines_comments_and_here_documents_are_understood() {
        let text = "# syntax=x\nARG V=1\nFROM base:$V AS one\nRUN a \\\n# between\n  b\nRUN <<EOF\nx\ny\nEOF\n\
                    RUN cat <<'E' > f\nz\nE\nRUN [\"p\", \"q r\"]\nCOPY --from=one --chmod=755 a b /c/\nENV A=1 B=\"2 3\"\n\
                    ENV C d e\nCMD [\"x\"]\n";
        let run = |script: &str| Instruction::Run(Run::Shell(script.into()));
        assert_eq!(
            instructions(text),
            [
                Instruction::Arg("V".into(), Some("1".into())),
                Instruction::From { image: "base:$V".into(), name: Some("one".into()) },
                run("a   b"),
                run("x\ny\n"),
                run("cat <<'E' > f\nz\nE\n"),
                Instruction::Run(Run::Exec(vec!["p".into(), "q r".into()])),
                Instruction::Copy {
                    sources: vec!["a".into(), "b".into()],
                    destination: "/c/".into(),
                    from: Some("one".into()),
                    owner: None,
                    mode: Some("755".into()),
                    inline: None,
                },
                Instruction::Env(vec![("A".into(), "1".into()), ("B".into(), "2 3".into())]),
                Instruction::Env(vec![("C".into(), "d e".into())]),
                Instruction::Cmd(Run::Exec(vec!["x".into()])),
            ]
        );
    }

    #[test]
    fn mistakes_name_their_line() {
        for (text, line) in [("", 1), ("RUN x", 1), ("FROM a\n\nFETCH x", 3), ("FROM a b", 1), ("FROM a\nCOPY x", 2)] {
            assert_eq!(Dockerfile::parse(text).unwrap_err().line, line, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(FROM a\n)?[A-Z \\\\<\"'$\\[\\]{}=#\n-]{0,60}") {
            let _ = Dockerfile::parse(&text);
        }
    }
}
