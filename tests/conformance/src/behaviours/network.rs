//! What a sandbox may reach. Seen in its own interfaces and routes: nothing outside has to answer.

use sandbox_bench_core::{NetworkPolicy, SandboxSpec};

use crate::check::{Check, Stop, same};
use crate::ensure;
use crate::harness::{Handle, Harness};

/// Number of routes, as the kernel lists them in `/proc/net/route` after one line of titles.
const ROUTES: &str = "tail -n +2 /proc/net/route | wc -l";

async fn on(h: &Harness, network: NetworkPolicy) -> Check<Handle> {
    Ok(h.create(&SandboxSpec { network, ..h.spec() }).await?.sandbox)
}

/// What bash says to a connection attempt. Without bash there is no portable way to make one.
async fn attempt(h: &Harness, s: &Handle, to: &str) -> Check<Option<String>> {
    let script = format!(
        "command -v bash >/dev/null || {{ echo no bash; exit 0; }}
         LC_ALL=C timeout 3 bash -c 'exec 3<>/dev/tcp/{to}' 2>&1; echo code $?"
    );
    Ok(Some(h.sh(s, &script).await?).filter(|text| text != "no bash"))
}

pub async fn off_is_off(h: &Harness) -> Check {
    let s = on(h, NetworkPolicy::NoNetwork).await?;
    same("routes to the outside", h.sh(&s, ROUTES).await?, "0".into())?;
    // 192.0.2.1 belongs to nobody (RFC 5737). A way out shows as silence, none as an answer of the own kernel.
    if let Some(text) = attempt(h, &s, "192.0.2.1/9").await? {
        ensure!(text.contains("nreachable"), "a connection to the outside was not refused by the sandbox: {text:?}");
    }
    Ok(())
}

pub async fn loopback_works_without_a_network(h: &Harness) -> Check {
    let s = on(h, NetworkPolicy::NoNetwork).await?;
    let Some(text) = attempt(h, &s, "127.0.0.1/9").await? else {
        return Err(Stop::Skipped("the source has no bash to connect with".into()));
    };
    ensure!(text.contains("refused"), "nothing listens on 127.0.0.1:9, so a connection is refused; got {text:?}");
    Ok(())
}

pub async fn public_has_a_way_out(h: &Harness) -> Check {
    let s = on(h, NetworkPolicy::Public).await?;
    let interfaces = h.sh(&s, "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' | grep -vc '^lo$'; true").await?;
    ensure!(interfaces != "0", "there is no interface but loopback");
    ensure!(h.sh(&s, ROUTES).await? != "0", "there is no route");
    let resolver = h.sh(&s, "grep -c '^nameserver' /etc/resolv.conf; true").await?;
    ensure!(!["", "0"].contains(&resolver.as_str()), "/etc/resolv.conf names no resolver");
    Ok(())
}
