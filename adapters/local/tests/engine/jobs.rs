//! Commands: ends, streams, deadlines, users.

use sandbox_bench_local::engine::{Command, End};

use crate::support::{bench, run, sh};

#[tokio::test]
async fn smoke() {
    let t = std::time::Instant::now();
    let bench = bench().await;
    eprintln!("open {:?}", t.elapsed());
    for _ in 0..5 {
        let t = std::time::Instant::now();
        let sandbox = bench.sandbox().await;
        eprintln!("create {:?}", t.elapsed());
        let (outcome, out, err) =
            run(&sandbox, Command::shell("echo hi; id; ls -la /; cat /proc/self/mountinfo; exit 7")).await;
        eprintln!("exec {:?} {outcome:?}\n{out}{err}", t.elapsed());
        assert_eq!(outcome.end, End::Exited(7));
        for _ in 0..5 {
            let t = std::time::Instant::now();
            sh(&sandbox, "true").await;
            eprintln!("exec again {:?}", t.elapsed());
        }
        let t = std::time::Instant::now();
        bench.engine.destroy(&sandbox.id()).await.unwrap();
        eprintln!("destroy {:?}", t.elapsed());
    }
    bench.close().await;
}
