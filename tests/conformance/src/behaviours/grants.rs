//! Only what was granted enters.

use secrecy::SecretString;

use sandbox_bench_core::{
    Call, ExecSpec, Grants, Input, InputEntry, NetworkPolicy, Payload, SandboxSpec, Stage, TagQuery, TailSink,
};

use crate::check::{Check, refused, same};
use crate::ensure;
use crate::harness::{Collected, Harness};

const SECRET: &str = "s3cr3t-of-the-conformance-suite";

fn with_secret(script: &str) -> ExecSpec {
    let secret_env = [("API_KEY".to_owned(), "api-key".to_owned())].into();
    ExecSpec { secret_env, ..ExecSpec::sh(script) }
}

pub async fn a_granted_secret_reaches_its_command_alone(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    let secrets = [("api-key".to_owned(), SecretString::from(SECRET))].into();
    let call = h.granting(Grants { secrets, ..Grants::default() });
    let sink = Collected::default();
    let lists = "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; done 2>/dev/null; true";
    let ran = h.exec_into(&call, &s, &with_secret(&format!("echo $API_KEY; {lists}")), &sink).await?;
    let text = ran.text()?;
    same("the secret in the command's environment", text.lines().next(), Some(SECRET))?;
    same("how often it is seen, arguments of all processes included", text.matches(SECRET).count(), 1)?;
    let after = h.sh(&s, "env; cat /proc/1/environ /proc/1/cmdline 2>/dev/null | tr '\\0' '\\n'; true").await?;
    ensure!(!after.contains(SECRET), "the secret is in the environment of a later command: {after:?}");
    let files = h.sh(&s, &format!("grep -rl -e {SECRET} /tmp /run /etc /root /dev/shm 2>/dev/null; true")).await?;
    same("files that hold the secret", files, String::new())
}

pub async fn a_secret_that_was_not_granted_is_denied(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    let secrets = [("another".to_owned(), SecretString::from(SECRET))].into();
    let call = h.granting(Grants { secrets, ..Grants::default() });
    let result = s.exec(&call, &with_secret("touch /tmp/ran"), &TailSink::new(0)).await;
    let error = refused("a command with a secret that was not granted", result, &["denied"])?;
    ensure!(!format!("{error} {error:?}").contains(SECRET), "the error shows a secret");
    h.sh(&s, "test ! -e /tmp/ran").await.map(drop)
}

pub async fn inputs_that_are_not_listed_are_denied(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    let input =
        |destination: &str, stage, content: &'static str| Input::bytes("in", destination, stage, 0o644, content);
    let listed = input("/conformance/in", Stage::Setup, "listed");
    let solution = input("/conformance/solution", Stage::Solve, "solution");
    let tests = input("/conformance/tests", Stage::Verify, "tests");
    let swapped = Payload::Bytes { bytes: "other!".into(), mode: 0o644 };
    let entries: Vec<InputEntry> = vec![listed.entry.clone(), solution.entry.clone(), tests.entry.clone()];
    let grants = |max| h.granting(Grants { inputs: entries.clone(), max_input_bytes: max, ..Grants::default() });
    let cases = [
        ("other bytes", grants(None), input("/conformance/in", Stage::Setup, "changed")),
        ("another destination", grants(None), input("/conformance/elsewhere", Stage::Setup, "listed")),
        ("the solution while setting up", grants(None), solution.clone()),
        ("the tests while setting up", grants(None), tests.clone()),
        ("the tests while solving", grants(None).in_stage(Stage::Solve), tests.clone()),
        ("the solution while verifying", grants(None).in_stage(Stage::Verify), solution),
        ("more bytes than granted", grants(Some(3)), listed.clone()),
        ("bytes that are not those of their entry", grants(None), Input { payload: swapped, ..listed.clone() }),
    ];
    for (what, call, input) in cases {
        // Together with one that is granted: all or nothing.
        let inputs = [listed.clone(), input];
        refused(what, s.upload(&call, &inputs).await, &["denied"])?;
        h.sh(&s, "test ! -e /conformance").await?;
    }
    s.upload(&grants(None).in_stage(Stage::Verify), &[listed, tests]).await?;
    same("what is granted", h.sh(&s, "cat /conformance/in /conformance/tests").await?, "listedtests".into())
}

pub async fn a_network_that_was_not_granted_is_denied(h: &Harness) -> Check {
    // The one request that is beyond a grant on every backend, whatever networks it can give.
    let grants = Grants { network: NetworkPolicy::NoNetwork, ..Grants::default() };
    let call = Call { grants: grants.into(), ..h.call() };
    let spec = SandboxSpec { network: NetworkPolicy::Public, ..h.spec() };
    refused("a network beyond the grant", h.backend.create(&call, &spec, &TailSink::new(0)).await, &["denied"])?;
    same("sandboxes after it", h.found(TagQuery::Exact(spec.tag)).await?, Vec::new())?;
    if h.can().network_off && h.can().network_public {
        let grants = Grants { network: NetworkPolicy::Public, ..Grants::default() };
        let call = Call { grants: grants.into(), ..h.call() };
        h.backend.create(&call, &h.spec(), &TailSink::new(0)).await?;
    }
    Ok(())
}
