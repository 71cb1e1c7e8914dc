//! Making sandboxes: what was asked for, or nothing at all.

use std::time::Duration;

use sandbox_bench_core::{Call, Digest, ErrorKind, Grants, Resources, SandboxSpec, Source, TagQuery, TailSink};
use tokio_util::sync::CancellationToken;

use crate::check::{Check, refused, same};
use crate::ensure;
use crate::harness::Harness;

/// Fails if anything carries the tag of this request.
async fn nothing_left(h: &Harness, spec: &SandboxSpec) -> Check {
    same("sandboxes after a failed create", h.found(TagQuery::Exact(spec.tag.clone())).await?, Vec::new())
}

pub async fn the_backend_says_who_it_is(h: &Harness) -> Check {
    let info = h.backend.info().clone();
    for (what, text) in [("name", &info.name), ("adapter version", &info.adapter_version), ("endpoint", &info.endpoint)]
    {
        ensure!(!text.is_empty(), "the backend has no {what}");
    }
    let can = &info.capabilities;
    ensure!(!can.isolation.is_empty(), "the kind of isolation is not named");
    ensure!(!can.attach_across_processes || can.attach, "attach_across_processes without attach");
    ensure!(!can.snapshot_keeps_sandbox || can.snapshot, "snapshot_keeps_sandbox without snapshot");
    ensure!(can.images || can.base || can.dockerfile || !can.mapped_images.is_empty(), "it can start from nothing");
    let found = h.backend.preflight(&h.call()).await?;
    ensure!(found.round_trip_us < 60_000_000, "a round trip of {} µs", found.round_trip_us);
    same("sandboxes after preflight", h.found(TagQuery::Run(h.run.clone())).await?.len(), 0)?;
    let s = h.sandbox().await?;
    same("the architecture", h.sh(&s, "uname -m").await?, info.architecture)
}

pub async fn the_facts_of_a_new_sandbox_are_true(h: &Harness) -> Check {
    let spec = h.spec();
    let created = h.create(&spec).await?;
    let reference = created.sandbox.reference().clone();
    same("the tag", reference.tag, spec.tag)?;
    same("the backend's name", reference.backend, h.backend.info().name.clone())?;
    ensure!(!reference.id.is_empty(), "the sandbox has no id");
    ensure!(!created.facts.resolved_source.is_empty(), "it is not said what the sandbox started from");
    let pwd = h.sh(&created.sandbox, "pwd").await?;
    same("the working directory in the facts", created.facts.workdir.unwrap_or_else(|| pwd.clone()), pwd)
}

pub async fn granted_resources_are_told(h: &Harness) -> Check {
    let asked = Resources { cpus: Some(1.0), memory_mb: Some(1024), ..Resources::default() };
    let created = h.create(&SandboxSpec { resources: asked.clone(), ..h.spec() }).await?;
    h.sh(&created.sandbox, "i=0; while [ $i -lt 1000 ]; do i=$((i+1)); done").await?;
    let observed = created.sandbox.observe(&h.call()).await?;
    for (when, granted) in [("at create", &created.facts.granted), ("later", &observed.granted)] {
        if h.can().memory_limit == sandbox_bench_core::Enforcement::Enforced {
            same(&format!("memory granted, {when}"), granted.memory_mb, asked.memory_mb)?;
        }
        if h.can().cpu_limit == sandbox_bench_core::Enforcement::Enforced {
            same(&format!("CPUs granted, {when}"), granted.cpus, asked.cpus)?;
        }
    }
    let plausible = |value: Option<u64>, max: u64| value.is_none_or(|value| value > 0 && value < max);
    ensure!(plausible(observed.cpu_us, 60_000_000), "CPU time used: {:?} µs", observed.cpu_us);
    ensure!(plausible(observed.peak_memory_bytes, 1 << 30), "peak memory: {:?} bytes", observed.peak_memory_bytes);
    Ok(())
}

pub async fn sandboxes_are_made_in_parallel(h: &Harness) -> Check {
    let specs = [h.spec(), h.spec(), h.spec(), h.spec()];
    let [a, b, c, d] = &specs;
    let created = tokio::join!(h.create(a), h.create(b), h.create(c), h.create(d));
    let created = [created.0?, created.1?, created.2?, created.3?];
    for (spec, created) in specs.iter().zip(&created) {
        let s = &created.sandbox;
        same("the tag of one of four", &s.reference().tag, &spec.tag)?;
        h.sh(s, &format!("test ! -e /tmp/tag && echo {} > /tmp/tag", spec.tag)).await?;
        same("what its tag finds", h.found(TagQuery::Exact(spec.tag.clone())).await?, vec![s.reference().id.clone()])?;
    }
    Ok(())
}

pub async fn a_missing_image_is_an_error_and_leaves_nothing(h: &Harness) -> Check {
    let source = Source::Image("sandbox-bench-conformance.invalid/no-such-image:none".into());
    let spec = SandboxSpec { environment_limit: Duration::from_secs(20), source, ..h.spec() };
    let kinds: &[&str] =
        if h.can().images { &["environment", "not_found"] } else { &["environment", "not_found", "unsupported"] };
    let error = refused("create from an image that does not exist", h.create(&spec).await, kinds)?;
    ensure!(error.to_string().contains("no-such-image"), "the error does not name the image: {error}");
    nothing_left(h, &spec).await
}

pub async fn a_missing_artifact_is_an_error_and_leaves_nothing(h: &Harness) -> Check {
    for id in ["no-such-artifact", "", "../../etc", "a/b\0c"] {
        let spec = SandboxSpec { source: Source::Artifact(id.into()), ..h.spec() };
        let error = refused(
            &format!("create from the artifact {id:?}"),
            h.create(&spec).await,
            &["not_found", "invalid_request"],
        )?;
        ensure!(error.to_string().len() > 10, "the error says nothing: {error}");
        nothing_left(h, &spec).await?;
    }
    Ok(())
}

pub async fn an_interrupted_create_leaves_nothing_unaccounted(h: &Harness) -> Check {
    for delay in [0, 2, 10, 50, 150, 400] {
        let delay = Duration::from_millis(delay);
        for cancelled in [true, false] {
            let spec = h.spec();
            let grants = Grants { network: spec.network.clone(), ..Grants::default() };
            let limit = if cancelled { h.pace.call } else { delay };
            let cancel = CancellationToken::new();
            let call = Call::new(spec.tag.clone(), limit, grants.into()).with_cancel(cancel.clone());
            let sink = TailSink::new(0);
            let (result, ()) = tokio::join!(h.backend.create(&call, &spec, &sink), async {
                if cancelled {
                    tokio::time::sleep(delay).await;
                    cancel.cancel();
                }
            });
            match result {
                Ok(created) => h.destroy(&created.sandbox).await?,
                // An honest answer: what came of it is found by its tag, and the suite's own cleaning destroys it.
                Err(error) if matches!(error.kind(), ErrorKind::UncertainSubmission { .. }) => {}
                Err(_) => nothing_left(h, &spec).await?,
            }
        }
    }
    Ok(())
}

/// A build context: a Dockerfile that starts from the suite's image and goes on with `rest`.
fn dockerfile(h: &Harness, rest: &str) -> Check<Source> {
    let Source::Image(image) = h.source() else {
        return Err(crate::Stop::Skipped("the suite's source is not an image to build on".into()));
    };
    let context = h.host_path();
    std::fs::create_dir_all(context.join("sub"))?;
    let text = format!("FROM {image}\n{rest}\n");
    let fingerprint = Digest::of(text.as_bytes());
    h.builds(&fingerprint);
    std::fs::write(context.join("sub/Dockerfile"), &text)?;
    std::fs::write(context.join("sub/copied file"), "copied")?;
    Ok(Source::Dockerfile { context, dockerfile: "sub/Dockerfile".into(), fingerprint })
}

pub async fn a_dockerfile_is_built_once(h: &Harness) -> Check {
    // The line that is looked for in the log is computed: the engine prints the instructions themselves too.
    let rest = format!(
        "WORKDIR /built\nENV BUILT=yes\nCOPY [\"sub/copied file\", \"/built/\"]\n\
         RUN echo {} is number $((6 * 7)) && echo made > made",
        h.run
    );
    let source = dockerfile(h, &rest)?;
    let (log, spec) = (TailSink::new(64 << 10), SandboxSpec { source, ..h.spec() });
    let call = h.granting(Grants::default());
    let created = h.backend.create(&call, &spec, &log).await?;
    let seen = h.sh(&created.sandbox, "pwd; echo $BUILT; cat 'copied file'; echo; cat made").await?;
    same("what the build made", seen, "/built\nyes\ncopied\nmade".into())?;
    let log = log.text(sandbox_bench_core::Stream::Stdout) + &log.text(sandbox_bench_core::Stream::Stderr);
    ensure!(log.contains(&format!("{} is number 42", h.run)), "the build's output is not in the log: {log:?}");
    same(
        "whether the first build was cached",
        created.facts.environment_cache,
        Some(sandbox_bench_core::CacheUse::Miss),
    )?;
    let again = h.create(&SandboxSpec { tag: h.tag(), ..spec }).await?;
    same(
        "whether the second build was cached",
        again.facts.environment_cache,
        Some(sandbox_bench_core::CacheUse::Hit),
    )?;
    same("what both started from", again.facts.resolved_source, created.facts.resolved_source)
}

pub async fn a_failed_build_is_an_environment_error_with_its_output(h: &Harness) -> Check {
    let source = dockerfile(h, &format!("RUN echo {} fails with $((1 + 2)) && exit 3", h.run))?;
    let (log, spec) = (TailSink::new(64 << 10), SandboxSpec { source, ..h.spec() });
    refused("create from a failing build", h.backend.create(&h.call(), &spec, &log).await, &["environment"])?;
    let log = log.text(sandbox_bench_core::Stream::Stdout) + &log.text(sandbox_bench_core::Stream::Stderr);
    ensure!(log.contains(&format!("{} fails with 3", h.run)), "the build's output is not in the log: {log:?}");
    nothing_left(h, &spec).await
}
