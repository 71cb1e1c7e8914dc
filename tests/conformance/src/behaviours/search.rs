//! Finding sandboxes by tag: all of ours, in any state, and nobody else's.

use std::time::Duration;

use sandbox_bench_core::{
    Destruction, Enforcement, ExecSpec, Found, SandboxSpec, SandboxState, Tag, TagQuery, TailSink,
};

use crate::check::{Check, same};
use crate::ensure;
use crate::harness::Harness;

async fn find(h: &Harness, query: TagQuery) -> Check<Vec<Found>> {
    let mut found = h.backend.find(&h.call(), &query).await?;
    found.sort_by(|a, b| a.reference.tag.cmp(&b.reference.tag));
    Ok(found)
}

pub async fn a_tag_finds_exactly_its_sandbox(h: &Harness) -> Check {
    let (a, b) = (h.sandbox().await?, h.sandbox().await?);
    let found = find(h, TagQuery::Exact(a.reference().tag.clone())).await?;
    same("what its tag finds", found.iter().map(|f| &f.reference).collect(), vec![a.reference()])?;
    let alive = found.iter().all(|f| f.state != SandboxState::Stopped);
    ensure!(alive, "a running sandbox is found as stopped");
    let longer = Tag::parse(&format!("{}0", a.reference().tag));
    ensure!(longer.is_some(), "the suite made a tag that is none");
    for tag in longer.into_iter().chain([h.tag()]) {
        same("what another tag finds", find(h, TagQuery::Exact(tag)).await?, Vec::new())?;
    }
    h.destroy(&b).await?;
    same(
        "what the tag of a destroyed sandbox finds",
        find(h, TagQuery::Exact(b.reference().tag.clone())).await?,
        vec![],
    )
}

pub async fn a_run_finds_all_its_sandboxes(h: &Harness) -> Check {
    let (a, b) = (h.sandbox().await?, h.sandbox().await?);
    let own = [a.reference(), b.reference()];
    let found = find(h, TagQuery::Run(h.run.clone())).await?;
    same("what the run finds", found.iter().map(|f| &f.reference).collect::<Vec<_>>(), own.to_vec())?;
    // Names that begin alike, up to a dash: what a careless search by prefix mistakes.
    let other = SandboxSpec { tag: Tag::new(&format!("{}-2", h.run), "u"), ..h.spec() };
    let other = h.create(&other).await?.sandbox;
    let found = find(h, TagQuery::Run(h.run.clone())).await;
    h.destroy(&other).await?;
    same("what it finds when a run of a similar name has one too", found?.len(), own.len())?;
    let all = find(h, TagQuery::All).await?;
    let missing = own.iter().find(|reference| !all.iter().any(|f| f.reference == ***reference));
    ensure!(missing.is_none(), "a search for everything does not find {missing:?}");
    Ok(())
}

pub async fn a_dead_sandbox_is_found_until_it_is_destroyed(h: &Harness) -> Check {
    let mut spec = h.spec();
    let dies_alone = h.can().lifetime == Enforcement::Enforced;
    if dies_alone {
        spec.lifetime = Duration::from_secs(2);
    }
    let s = h.create(&spec).await?.sandbox;
    // Otherwise the worst that a command can do to its own sandbox has to do.
    let kill = if dies_alone { "sleep 30" } else { "kill -9 -1; kill -9 1" };
    drop(s.exec(&h.call(), &ExecSpec::sh(kill), &TailSink::new(0)).await);
    let found = find(h, TagQuery::Exact(s.reference().tag.clone())).await?;
    same("what its tag finds", found.iter().map(|f| &f.reference).collect(), vec![s.reference()])?;
    for found in found {
        same("destroy", h.backend.destroy(&h.call(), &found.reference).await?, Destruction::Confirmed)?;
    }
    same("after destroy", find(h, TagQuery::Exact(s.reference().tag.clone())).await?, Vec::new())
}
