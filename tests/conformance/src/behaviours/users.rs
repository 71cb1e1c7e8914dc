//! Who commands run as.

use sandbox_bench_core::{ExecSpec, Input, Stage, TailSink};

use crate::check::{Check, refused, same};
use crate::ensure;
use crate::harness::Harness;

pub async fn commands_run_as_the_user_asked_for(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    let id = |user: &str| ExecSpec::sh("id -u; id -g").user(user);
    let nobody = h.sh(&s, "id -u nobody; id -g nobody").await?;
    same("ids of nobody by name", h.exec(&s, &id("nobody")).await?.text()?, nobody.clone())?;
    let uid = nobody.lines().next().unwrap_or_default();
    same("ids of nobody by number", h.exec(&s, &id(uid)).await?.text()?, nobody.clone())?;
    let unlisted = h.exec(&s, &id("4321")).await?.text()?;
    ensure!(
        unlisted.starts_with("4321\n") && !unlisted.ends_with("\n0"),
        "ids of the user 4321, who has no entry: {unlisted:?}"
    );
    Ok(())
}

pub async fn an_ordinary_user_cannot_touch_what_is_roots(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    let inputs = [
        Input::bytes("a", "/conformance/readable", Stage::Setup, 0o644, "open"),
        Input::bytes("b", "/conformance/private", Stage::Setup, 0o600, "closed"),
    ];
    h.upload(&s, &inputs).await?;
    let script = "cat /conformance/readable; cat /conformance/private; echo x >> /conformance/readable; \
                  touch /conformance/new /etc/new; true";
    let ran = h.exec(&s, &ExecSpec::sh(script).user("nobody")).await?;
    same("what nobody can read", ran.text()?, "open".into())?;
    let after = h.sh(&s, "cat /conformance/readable; ls /conformance; ls /etc/new 2>/dev/null; true").await?;
    same("what nobody changed", after, "openprivate\nreadable".into())
}

pub async fn an_unknown_user_is_not_found(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    let spec = ExecSpec::sh("touch /tmp/ran").user("no-such-user");
    refused("a command as an unknown user", s.exec(&h.call(), &spec, &TailSink::new(0)).await, &["not_found"])?;
    h.sh(&s, "test ! -e /tmp/ran").await.map(drop)
}

pub async fn root_is_root(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    h.upload(&s, &[Input::bytes("b", "/conformance/private", Stage::Setup, 0o600, "closed")]).await?;
    let script = "id -u; cat /conformance/private; touch /etc/conformance /conformance/new && mkdir /conformance-top && \
                  echo ' done'";
    let ran = h.exec(&s, &ExecSpec::sh(script).user("root")).await?;
    same("what root can do", ran.text()?, "0\nclosed done".into())
}

pub async fn home_is_the_users_own(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    let home = |user: &str| ExecSpec::sh("echo $HOME").user(user);
    let root = h.exec(&s, &home("root")).await?.text()?;
    same("HOME of root", root, "/root".into())?;
    let entry = h.sh(&s, "grep '^nobody:' /etc/passwd | cut -d: -f6").await?;
    same("HOME of nobody", h.exec(&s, &home("nobody")).await?.text()?, entry)
}
