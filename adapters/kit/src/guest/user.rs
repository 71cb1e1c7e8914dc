//! Running a command as another user, where the backend itself cannot.

use std::collections::BTreeMap;

use sandbox_bench_core::{Error, ErrorKind};

const SCRIPT: &str = include_str!("as_user.sh");
/// How the script begins what it has to say.
const VOICE: &str = "sandbox-bench: ";

/// The command that becomes `user` (a name or a numeric id) and then runs `argv`, usually that of [`super::Wrapped`].
/// It has to be started as root, or where `sudo` asks for no password. `HOME` becomes the user's, unless `variables`
/// (those of the command, which the caller sets) name it.
///
/// A directory that was set before stays. Exit codes are those of `argv`; what hinders it is in the text that comes
/// before its output ([`not_become`]).
#[must_use]
pub fn as_user(user: &str, variables: &BTreeMap<String, String>, argv: Vec<String>) -> Vec<String> {
    let home = if variables.contains_key("HOME") { "kept" } else { "own" };
    let script = ["/bin/sh", "-c", SCRIPT, "sh", user, home].into_iter().map(str::to_owned);
    script.chain(argv).collect()
}

/// The error in `text` that [`as_user`] left instead of the output of its command, if it did: `NotFound` for an unknown
/// user, `Unsupported` if nothing in the sandbox can become another user. `what` begins the message. An adapter's own
/// script may speak in the same way (`sandbox-bench: no such directory: …`).
#[must_use]
pub fn not_become(what: &str, text: &str) -> Option<Error> {
    let said = text.lines().find_map(|line| line.strip_prefix(VOICE))?;
    let kind = if said.starts_with("no such ") { ErrorKind::NotFound } else { ErrorKind::Unsupported };
    Some(Error::new(kind, format!("{what}: {said}")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::process::{Command, Output};

    use super::*;

    /// Starts it as the user who runs the tests.
    fn run(user: &str, variables: &[(&str, &str)], argv: &[&str]) -> Output {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let argv = as_user(user, &variables, argv.iter().map(|word| (*word).to_owned()).collect());
        let (program, arguments) = argv.split_first().unwrap();
        Command::new(program).args(arguments).envs(&variables).output().unwrap()
    }

    fn text(output: &Output) -> String {
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn own_id() -> String {
        text(&Command::new("id").arg("-u").output().unwrap()).trim().to_owned()
    }

    const WHO: &[&str] = &["sh", "-c", "id -u; id -g; id -G; echo $HOME"];

    #[test]
    fn root_becomes_whoever_is_asked_for() {
        if own_id() != "0" {
            return;
        }
        let entry = std::fs::read_to_string("/etc/passwd").unwrap();
        let nobody: Vec<&str> = entry.lines().find(|line| line.starts_with("nobody:")).unwrap().split(':').collect();
        let (uid, gid, home) = (nobody[2], nobody[3], nobody[5]);
        for user in ["nobody", uid] {
            let who = text(&run(user, &[], WHO));
            assert!(who.starts_with(&format!("{uid}\n{gid}\n")) && who.ends_with(&format!("\n{home}\n")), "{who}");
        }
        assert_eq!(text(&run("4321", &[], WHO)), "4321\n4321\n4321\n/\n");
        assert_eq!(text(&run("4321", &[("HOME", "/elsewhere")], &["sh", "-c", "echo $HOME"])), "/elsewhere\n");
        assert!(text(&run("root", &[], WHO)).starts_with("0\n0\n"));
    }

    #[test]
    fn the_command_keeps_its_arguments_and_its_exit_code() {
        let own = own_id();
        let show = run(&own, &[], &["sh", "-c", "printf '%s|' \"$@\"; exit 7", "sh", "a b", "", "-c", "$HOME"]);
        assert_eq!((text(&show), show.status.code()), ("a b||-c|$HOME|".to_owned(), Some(7)));
        assert_eq!(run(&own, &[], &["no-such-program"]).status.code(), Some(127));
    }

    #[test]
    fn an_unknown_user_is_told_and_nothing_runs() {
        for user in ["no-such-user", "", "0x0", "-1"] {
            let refused = run(user, &[], &["echo", "ran"]);
            assert_eq!(text(&refused), "");
            let error = not_become("sandbox 1", &String::from_utf8_lossy(&refused.stderr)).unwrap();
            assert_eq!(error.kind(), &ErrorKind::NotFound, "{error}");
        }
        assert!(not_become("sandbox 1", "sh: 1: cannot fork\n").is_none());
    }
}
