//! Requests into one sandbox: to the daemon that runs in it, through the platform's proxy.

use std::sync::Arc;
use std::time::Duration;

use reqwest::multipart::Form;
use reqwest::{Method, RequestBuilder, Response, Url};
use sandbox_bench_core::{Call, Error, ErrorKind, Result};
use sandbox_bench_kit::http::{Effect, send};
use serde_json::json;

use crate::client::{Answer, Client, accepted, acknowledged, ask};
use crate::wire::{CommandObject, Executed, Located, LogObject, SandboxObject, Submitted};

/// Answers may come this much later than the command's own limit.
const ANSWER_MARGIN: Duration = Duration::from_secs(5);

/// The daemon of one sandbox.
#[derive(Clone)]
pub(crate) struct Toolbox {
    client: Arc<Client>,
    base: Url,
}

/// Quotes a text for a shell.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

impl Toolbox {
    /// The daemon of `sandbox`: below the proxy's address that the API names, by the sandbox's id.
    pub(crate) async fn of(client: &Arc<Client>, call: &Call, sandbox: &SandboxObject) -> Result<Self> {
        let what = format!("sandbox {}: address of its toolbox", sandbox.id);
        let address = match sandbox.toolbox_proxy_url.clone().filter(|url| !url.is_empty()) {
            Some(address) => address,
            None => {
                let located: Located = client.get(call, &what, &["sandbox", &sandbox.id, "toolbox-proxy-url"]).await?;
                located.url
            }
        };
        let odd = || Error::new(ErrorKind::Failed, format!("{what}: not an address of the web"));
        let mut base = Url::parse(&address).map_err(|_| odd())?;
        base.path_segments_mut().map_err(|()| odd())?.pop_if_empty().push(&sandbox.id);
        Ok(Self { client: client.clone(), base })
    }

    fn request(&self, method: Method, path: &[&str]) -> RequestBuilder {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.extend(path);
        }
        self.client.toolbox.request_at(method, url)
    }

    /// Runs a short command to its end; output is both streams, as text. The command's own limit is `limit`, in whole
    /// seconds; then it is killed and the error is `Unavailable`.
    ///
    /// The daemon hands the text to a shell's standard input, so the command gets another one.
    pub(crate) async fn execute(&self, call: &Call, what: &str, argv: &[String], limit: Duration) -> Result<Executed> {
        let words: Vec<String> = argv.iter().map(|word| quoted(word)).collect();
        let body = json!({"command": format!("{} </dev/null", words.join(" ")), "timeout": limit.as_secs().max(1)});
        let call = call.within(limit + ANSWER_MARGIN);
        let request = self.request(Method::POST, &["process", "execute"]).json(&body);
        let answer: Answer<Executed> = ask(&call, what, Effect::Idempotent, request).await?;
        answer.map_err(|no| no.error(what, Effect::Idempotent))
    }

    /// Makes a directory that only the daemon's user can enter.
    pub(crate) async fn private_directory(&self, call: &Call, what: &str, path: &str) -> Result<()> {
        let request = self.request(Method::POST, &["files", "folder"]).query(&[("path", path), ("mode", "700")]);
        let answer = acknowledged(call, what, Effect::Idempotent, request).await?;
        answer.map_err(|no| no.error(what, Effect::Idempotent))
    }

    /// Writes files; `form` has for each a path and then its content.
    pub(crate) async fn upload(&self, call: &Call, what: &str, form: Form) -> Result<()> {
        let request = self.request(Method::POST, &["files", "bulk-upload"]).multipart(form);
        let answer = acknowledged(call, what, Effect::Idempotent, request).await?;
        answer.map_err(|no| no.error(what, Effect::Idempotent))
    }

    /// The content of a file.
    pub(crate) async fn download(&self, call: &Call, what: &str, path: &str) -> Result<Response> {
        let request = self.request(Method::GET, &["files", "download"]).query(&[("path", path)]);
        let answer = accepted(call, what, send(call, what, Effect::Idempotent, request).await?).await?;
        answer.map_err(|no| no.error(what, Effect::Idempotent))
    }

    /// Removes a file.
    pub(crate) async fn remove(&self, call: &Call, what: &str, path: &str) -> Result<()> {
        let request = self.request(Method::DELETE, &["files"]).query(&[("path", path)]);
        let answer = acknowledged(call, what, Effect::Idempotent, request).await?;
        answer.map_err(|no| no.error(what, Effect::Idempotent))
    }

    /// Starts a session: a shell that takes commands.
    pub(crate) async fn open(&self, call: &Call, what: &str, session: &str) -> Result<Answer<()>> {
        let request = self.request(Method::POST, &["process", "session"]).json(&json!({"sessionId": session}));
        acknowledged(call, what, Effect::Once, request).await
    }

    /// Hands a command to a session, which runs it; returns the command's id.
    pub(crate) async fn submit(&self, call: &Call, what: &str, session: &str, command: &str) -> Result<String> {
        let body = json!({"command": command, "runAsync": true});
        let request = self.request(Method::POST, &["process", "session", session, "exec"]).json(&body);
        let answer: Answer<Submitted> = ask(call, what, Effect::Once, request).await?;
        answer.map(|submitted| submitted.cmd_id).map_err(|no| no.error(what, Effect::Once))
    }

    /// The exit code of a command; none while it, or whatever holds its output, runs.
    pub(crate) async fn exit_code(
        &self,
        call: &Call,
        what: &str,
        (session, command): (&str, &str),
    ) -> Result<Option<i32>> {
        let request = self.request(Method::GET, &["process", "session", session, "command", command]);
        let answer: Answer<CommandObject> = ask(call, what, Effect::Idempotent, request).await?;
        answer.map(|command| command.exit_code).map_err(|no| no.error(what, Effect::Idempotent))
    }

    /// A request for the log of a command, from its beginning and as it grows.
    pub(crate) fn log(&self, (session, command): (&str, &str)) -> RequestBuilder {
        let path = ["process", "session", session, "command", command, "logs"];
        self.request(Method::GET, &path).query(&[("follow", "true")])
    }

    /// The log of a command so far, at once; bytes that are no UTF-8 are replaced.
    pub(crate) async fn whole_log(&self, call: &Call, what: &str, (session, command): (&str, &str)) -> Result<String> {
        let path = ["process", "session", session, "command", command, "logs"];
        let answer: Answer<LogObject> = ask(call, what, Effect::Idempotent, self.request(Method::GET, &path)).await?;
        answer.map(|log| log.output).map_err(|no| no.error(what, Effect::Idempotent))
    }

    /// Ends a session and all that runs in it.
    pub(crate) async fn close(&self, call: &Call, session: &str) -> Result<()> {
        let what = "end of a session";
        let request = self.request(Method::DELETE, &["process", "session", session]);
        match acknowledged(call, what, Effect::Idempotent, request).await? {
            Err(no) if no.status() != 404 => Err(no.error(what, Effect::Idempotent)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(50))]
        #[test]
        fn a_shell_reads_back_what_was_quoted(text in "[^\0]{0,60}") {
            let script = format!("printf %s {}", quoted(&text));
            let output = std::process::Command::new("/bin/sh").args(["-c", &script]).output().unwrap();
            prop_assert_eq!(String::from_utf8_lossy(&output.stdout), text);
        }
    }
}
