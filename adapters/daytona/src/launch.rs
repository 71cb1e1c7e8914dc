//! What starts one command: a script that is uploaded, because a session takes no arguments, no variables, no directory
//! and no bytes for standard input, and shows the text that it was given to whoever asks.

use std::collections::BTreeMap;

use crate::toolbox::quoted;

/// What a script needs to know.
pub(crate) struct Launch<'a> {
    /// The script itself and the bytes for standard input, in the sandbox.
    pub(crate) files: Files<'a>,
    /// Environment variables, with names that a shell can export ([`take_odd`]).
    pub(crate) variables: &'a BTreeMap<String, String>,
    /// Working directory; none: that of the session.
    pub(crate) directory: Option<&'a str>,
    /// Program and arguments.
    pub(crate) argv: &'a [String],
}

/// Paths in the sandbox.
#[derive(Clone, Copy)]
pub(crate) struct Files<'a> {
    /// Of the script.
    pub(crate) script: &'a str,
    /// Of the bytes for standard input; none: it is empty.
    pub(crate) stdin: Option<&'a str>,
}

impl Launch<'_> {
    /// The text of the script. It opens its files and removes them before anything else runs; what it cannot do it says
    /// as [`sandbox_bench_kit::guest::not_become`] reads it.
    pub(crate) fn script(&self) -> String {
        let Files { script, stdin } = self.files;
        let mut text = format!("exec <{}\n", quoted(stdin.unwrap_or("/dev/null")));
        let files: Vec<String> = [Some(script), stdin].into_iter().flatten().map(quoted).collect();
        text += &format!("rm -f {}\n", files.join(" "));
        for (name, value) in self.variables {
            text += &format!("export {name}={}\n", quoted(value));
        }
        if let Some(directory) = self.directory {
            let at = quoted(directory);
            text +=
                &format!("cd {at} 2>/dev/null || {{ echo sandbox-bench: no such directory: {at} >&2; exit 125; }}\n");
        }
        let words: Vec<String> = self.argv.iter().map(|word| quoted(word)).collect();
        text + &format!("exec {}\n", words.join(" "))
    }
}

/// Takes the variables out that no shell can export and some do not even pass on. A program can be given them all the
/// same: by the returned beginning of its command.
pub(crate) fn take_odd(variables: &mut BTreeMap<String, String>) -> Vec<String> {
    let odd = variables.extract_if(.., |name, _| !is_identifier(name)).map(|(name, value)| format!("{name}={value}"));
    let odd: Vec<String> = odd.collect();
    if odd.is_empty() { odd } else { [vec!["env".to_owned()], odd].concat() }
}

fn is_identifier(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b == b'_' || b.is_ascii_alphabetic())
        && bytes.all(|b| b == b'_' || b.is_ascii_alphanumeric())
}

/// What the session runs: in a shell of its own, since `exec` in the session's own would end that.
pub(crate) fn session_command(script: &str) -> String {
    format!("( exec /bin/sh {} )", quoted(script))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::path::Path;
    use std::process::{Command, Output};

    use sandbox_bench_core::ErrorKind;
    use sandbox_bench_kit::guest::not_become;

    use super::*;

    /// Runs a script as a session does, on this machine.
    fn run(variables: &[(&str, &str)], directory: Option<&str>, stdin: Option<&[u8]>, argv: &[&str]) -> Output {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let (script, input) = (path("it's a script"), path("in"));
        let mut variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let argv = [take_odd(&mut variables), argv.iter().map(|word| (*word).to_owned()).collect()].concat();
        let files = Files { script: &script, stdin: stdin.map(|_| input.as_str()) };
        let text = Launch { files, variables: &variables, directory, argv: &argv }.script();
        std::fs::write(&script, text).unwrap();
        if let Some(bytes) = stdin {
            std::fs::write(&input, bytes).unwrap();
        }
        let output = Command::new("/bin/sh").args(["-c", &session_command(&script)]).output().unwrap();
        assert!(!Path::new(&script).exists() && !Path::new(&input).exists(), "the files are left");
        output
    }

    #[test]
    fn everything_arrives_and_nothing_is_left() {
        let variables = [("A", "it's \"$HOME\"\n"), ("odd.name", "x y")];
        let show = ["sh", "-c", "printf '%s|' \"$A\" \"$1\"; pwd; cat", "sh", "a b'c"];
        let output = run(&variables, Some("/usr"), Some(b"\0in\xff"), &show);
        assert_eq!(output.stdout, b"it's \"$HOME\"\n|a b'c|/usr\n\0in\xff");
        assert_eq!(run(&variables, None, None, &["printenv", "odd.name"]).stdout, b"x y\n");
        assert_eq!(run(&[], None, None, &["cat"]).stdout, b"");
        assert_eq!(run(&[], None, None, &["sh", "-c", "exit 7"]).status.code(), Some(7));
    }

    #[test]
    fn a_directory_that_is_not_there_is_told_and_nothing_runs() {
        let output = run(&[], Some("/no such directory"), None, &["echo", "ran"]);
        assert_eq!(output.stdout, b"");
        let error = not_become("sandbox 1", &String::from_utf8_lossy(&output.stderr)).unwrap();
        assert_eq!(*error.kind(), ErrorKind::NotFound);
    }
}
