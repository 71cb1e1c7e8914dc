//! Prints what the engine itself costs: medians over one run, in milliseconds.
//!
//! `cargo bench -p sandbox-bench-local`. With `ROUNDS=200` for more than the default of 50 sandboxes.

use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
use sandbox_bench_local::engine::{Base, Command, End, Engine, EngineOptions, SandboxConfig};

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rounds: usize = std::env::var("ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(50);
    let dir = tempfile::Builder::new().prefix("sandbox-bench-latency-").tempdir_in("/var/tmp")?;
    let options = EngineOptions { helper: Some(env!("CARGO_BIN_EXE_sandbox-bench-local-helper").into()) };
    let (engine, open) = timed(Engine::open(dir.path(), options)).await;
    let engine = engine?;
    let names =
        ["create", "first exec", "create + first exec", "further exec", "snapshot", "clone + first exec", "destroy"];
    let mut samples: [Vec<Duration>; 7] = Default::default();
    let mut host = None;
    for round in 0..=rounds {
        let (sandbox, create) = timed(engine.create(SandboxConfig::new(format!("bench-{round}"), Base::Host))).await;
        let sandbox = sandbox?;
        let (first, exec) = timed(run(&sandbox)).await;
        first?;
        if round == 0 {
            // The first one has prepared the filtered copy of the host, and warmed the page cache.
            host = Some(create);
            engine.destroy(&sandbox.id()).await?;
            continue;
        }
        let mut further = Vec::new();
        for _ in 0..10 {
            let (again, time) = timed(run(&sandbox)).await;
            again?;
            further.push(time);
        }
        let name = format!("snapshot-{round}");
        let (snapshot, snap) = timed(sandbox.snapshot(&name, Default::default())).await;
        snapshot?;
        let clone = async {
            let config = SandboxConfig::new(format!("clone-{round}"), Base::Snapshot(name.clone()));
            let clone = engine.create(config).await?;
            run(&clone).await?;
            Ok::<_, Box<dyn std::error::Error>>(clone)
        };
        let (clone, warm) = timed(clone).await;
        engine.destroy(&clone?.id()).await?;
        let (destroyed, destroy) = timed(engine.destroy(&sandbox.id())).await;
        destroyed?;
        engine.delete_snapshot(&name).await?;
        for (samples, sample) in
            samples.iter_mut().zip([create, exec, create + exec, median(&mut further), snap, warm, destroy])
        {
            samples.push(sample);
        }
    }
    println!("{rounds} sandboxes as uid {}, ms", rustix::process::geteuid().as_raw());
    println!("{:<22}{:>9}", "open (with probe)", show(open));
    println!("{:<22}{:>9}", "first create", show(host.unwrap_or_default()));
    println!("{:<22}{:>9}{:>9}{:>9}", "", "median", "min", "max");
    for (name, samples) in names.iter().zip(&mut samples) {
        let median = median(samples);
        let (min, max) = (samples.first().copied().unwrap_or_default(), samples.last().copied().unwrap_or_default());
        println!("{name:<22}{:>9}{:>9}{:>9}", show(median), show(min), show(max));
    }
    Ok(())
}

#[cfg(target_os = "linux")]
async fn run(sandbox: &sandbox_bench_local::engine::EngineSandbox) -> Result<(), Box<dyn std::error::Error>> {
    match sandbox.exec(Command::new(["/bin/true"]))?.outcome().await?.end {
        End::Exited(0) => Ok(()),
        end => Err(format!("{end:?}").into()),
    }
}

#[cfg(target_os = "linux")]
async fn timed<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let start = Instant::now();
    let result = work.await;
    (result, start.elapsed())
}

/// Sorts the samples.
#[cfg(target_os = "linux")]
fn median(samples: &mut [Duration]) -> Duration {
    samples.sort();
    samples.get(samples.len() / 2).copied().unwrap_or_default()
}

#[cfg(target_os = "linux")]
fn show(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64() * 1000.0)
}
