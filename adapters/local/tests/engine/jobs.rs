//! Commands: how they end, what they say, as whom they run.

use std::time::{Duration, Instant};

use sandbox_bench_local::engine::{Command, End, Event, NotStarted, Stop, Stream, User};

use crate::support::{bench, count, run, sh};

#[tokio::test]
async fn ends_are_exact_and_streams_are_apart() {
    let bench = bench().await;
    let sandbox = bench.sandbox().await;
    let (outcome, stdout, stderr) = run(&sandbox, Command::shell("echo out; echo err >&2; exit 7")).await;
    assert_eq!((outcome.end, stdout.as_str(), stderr.as_str()), (End::Exited(7), "out\n", "err\n"));
    let (outcome, ..) = run(&sandbox, Command::shell("kill -9 $$")).await;
    assert_eq!(outcome.end, End::Signalled(9));
    let (outcome, ..) = run(&sandbox, Command::shell("exit 137")).await;
    assert_eq!(outcome.end, End::Exited(137));
    assert!(!outcome.out_of_memory);
    bench.close().await;
}

#[tokio::test]
async fn a_command_that_cannot_start_says_why() {
    let bench = bench().await;
    let sandbox = bench.sandbox().await;
    let not_started = |outcome: sandbox_bench_local::engine::Outcome| match outcome.end {
        End::NotStarted(why) => why,
        end => panic!("{end:?}"),
    };
    let (outcome, ..) = run(&sandbox, Command::new(["no-such-program"])).await;
    assert!(matches!(not_started(outcome), NotStarted::NoProgram { .. }));
    let (outcome, ..) = run(&sandbox, Command::new(["/etc/passwd"])).await;
    assert!(matches!(not_started(outcome), NotStarted::NotExecutable { .. }));
    let (outcome, ..) = run(&sandbox, Command { cwd: Some("/nowhere".into()), ..Command::shell("true") }).await;
    assert!(matches!(not_started(outcome), NotStarted::NoDirectory { .. }));
    let (outcome, ..) = run(&sandbox, Command { user: User::Name("no-such".into()), ..Command::shell("true") }).await;
    assert!(matches!(not_started(outcome), NotStarted::NoUser { .. }));
    for bad in [Command::new(Vec::<String>::new()), Command::new(["a\0b"]), Command::new([""])] {
        assert!(sandbox.exec(bad).is_err());
    }
    bench.close().await;
}

#[tokio::test]
async fn environment_directory_and_input_arrive() {
    let bench = bench().await;
    let sandbox = bench.sandbox().await;
    sh(&sandbox, "mkdir /work").await;
    let mut command = Command::shell("env | sort | grep -v '^_='; pwd; wc -c");
    command.cwd = Some("/work".into());
    command.env.insert("GREETING".into(), "hello world".into());
    command.stdin = true;
    let running = sandbox.exec(command).unwrap();
    let input = running.input();
    // More than the window: it must flow, not fit.
    let size = 3_000_000;
    let feed = async {
        assert!(input.send(&vec![b'x'; size]).await);
        input.end();
    };
    let (output, ()) = tokio::join!(running.output(), feed);
    let stdout = String::from_utf8(output.unwrap().1).unwrap();
    let lines: Vec<_> = stdout.lines().collect();
    assert_eq!(lines.len(), 6, "nothing of our own environment enters: {stdout}");
    assert!(lines.contains(&"GREETING=hello world") && lines.contains(&"HOME=/root") && lines.contains(&"/work"));
    assert_eq!(lines.last().unwrap().trim(), size.to_string());
    bench.close().await;
}

#[tokio::test]
async fn input_that_nobody_reads_does_not_block() {
    let bench = bench().await;
    let sandbox = bench.sandbox().await;
    let running = sandbox.exec(Command { stdin: true, ..Command::shell("exec true") }).unwrap();
    let input = running.input();
    let feed = async {
        input.send(&vec![0; 5_000_000]).await;
        input.end();
    };
    let (output, ()) = tokio::join!(running.output(), feed);
    assert_eq!(output.unwrap().0.end, End::Exited(0));
    bench.close().await;
}

#[tokio::test]
async fn a_flood_is_bounded_and_counted() {
    let bench = bench().await;
    let sandbox = bench.sandbox().await;
    let script = "echo first; head -c 50000000 /dev/zero | tr '\\0' x; echo; echo last";
    let mut running = sandbox.exec(Command { output_cap: 100_000, ..Command::shell(script) }).unwrap();
    let (mut kept, mut gap_at, mut gap) = (Vec::new(), None, 0);
    while let Some(event) = running.next().await.unwrap() {
        match event {
            Event::Output(Stream::Stdout, bytes) => kept.extend(bytes),
            Event::Output(Stream::Stderr, bytes) => panic!("{}", String::from_utf8_lossy(&bytes)),
            Event::Omitted(stream, bytes) => (gap_at, gap) = (Some((stream, kept.len())), bytes),
        }
    }
    let outcome = running.outcome().await.unwrap();
    assert_eq!(outcome.stdout.total, 50_000_012);
    assert_eq!(outcome.stdout.omitted, gap);
    assert_eq!(gap_at, Some((Stream::Stdout, 50_000)));
    assert_eq!(kept.len() as u64 + gap, outcome.stdout.total);
    assert!(kept.starts_with(b"first\n") && kept.ends_with(b"\nlast\n"));
    bench.close().await;
}

#[tokio::test]
async fn output_arrives_while_the_command_runs() {
    let bench = bench().await;
    let sandbox = bench.sandbox().await;
    let mut running =
        sandbox.exec(Command { stdin: true, ..Command::shell("echo ready; read line; echo $line") }).unwrap();
    assert_eq!(running.next().await.unwrap(), Some(Event::Output(Stream::Stdout, b"ready\n".to_vec())));
    let input = running.input();
    input.send(b"go\n").await;
    assert_eq!(running.next().await.unwrap(), Some(Event::Output(Stream::Stdout, b"go\n".to_vec())));
    assert_eq!(running.next().await.unwrap(), None);
    bench.close().await;
}

#[tokio::test]
async fn a_slow_reader_of_one_job_does_not_hold_up_another() {
    let bench = bench().await;
    let sandbox = bench.sandbox().await;
    let flood = Command { output_cap: 1 << 30, ..Command::shell("head -c 30000000 /dev/zero") };
    let unread = sandbox.exec(flood).unwrap();
    assert_eq!(sh(&sandbox, "echo through").await, "through\n");
    let (outcome, stdout, _) = unread.output().await.unwrap();
    assert_eq!((outcome.end, stdout.len()), (End::Exited(0), 30_000_000));
    bench.close().await;
}

#[tokio::test]
async fn jobs_run_in_parallel() {
    let bench = bench().await;
    let sandbox = bench.sandbox().await;
    // Each waits for the other: run one after the other, they would never end.
    let meet = |mine: &str, other: &str| format!("touch /tmp/{mine}; while [ ! -e /tmp/{other} ]; do sleep 0.01; done");
    let (a, b) = (meet("a", "b"), meet("b", "a"));
    tokio::join!(sh(&sandbox, &a), sh(&sandbox, &b));
    bench.close().await;
}

#[tokio::test]
async fn a_deadline_kills_the_whole_tree_and_keeps_what_was_said() {
    let bench = bench().await;
    let sandbox = bench.sandbox().await;
    // Ignores the polite signal, leaves its session, forks twice and hides its environment.
    let script = "echo before; trap '' TERM; env -i setsid sh -c 'sh -c \"trap \\\"\\\" TERM; sleep 1001\" & sleep 1002' & \
                  (setsid nohup sleep 1003 >/dev/null 2>&1 &) ; sleep 1004";
    let (outcome, stdout, _) =
        run(&sandbox, Command { timeout: Some(Duration::from_millis(300)), ..Command::shell(script) }).await;
    assert_eq!(outcome.stopped, Some(Stop::Deadline));
    assert_eq!(outcome.tree_killed, Some(true));
    assert_eq!(stdout, "before\n");
    assert_eq!(count(&sandbox, "sleep").await, 0);
    bench.close().await;
}

#[tokio::test]
async fn a_deadline_lets_a_polite_command_clean_up() {
    let bench = bench().await;
    let sandbox = bench.sandbox().await;
    let script = "trap 'echo cleaned; exit 3' TERM; while :; do sleep 0.05; done";
    let (outcome, stdout, _) =
        run(&sandbox, Command { timeout: Some(Duration::from_millis(200)), ..Command::shell(script) }).await;
    assert_eq!((outcome.stopped, outcome.end), (Some(Stop::Deadline), End::Exited(3)));
    assert_eq!(stdout, "cleaned\n");
    bench.close().await;
}

#[tokio::test]
async fn a_deadline_spares_what_other_jobs_started() {
    let bench = bench().await;
    let sandbox = bench.sandbox().await;
    sh(&sandbox, "setsid sleep 2001 >/dev/null 2>&1 &").await;
    let hung = Command { timeout: Some(Duration::from_millis(100)), ..Command::shell("sleep 2002") };
    let (outcome, ..) = run(&sandbox, hung).await;
    assert_eq!(outcome.tree_killed, Some(true));
    assert_eq!(count(&sandbox, "sleep 200").await, 1);
    bench.close().await;
}

#[tokio::test]
async fn killing_or_dropping_a_job_ends_its_tree() {
    let bench = bench().await;
    let sandbox = bench.sandbox().await;
    let running = sandbox.exec(Command::shell("setsid sleep 3001 & sleep 3002")).unwrap();
    running.kill();
    let outcome = running.outcome().await.unwrap();
    assert_eq!((outcome.stopped, outcome.tree_killed), (Some(Stop::Cancelled), Some(true)));
    drop(sandbox.exec(Command::shell("setsid sleep 3003 & sleep 3004")).unwrap());
    while count(&sandbox, "sleep 300").await > 0 {}
    bench.close().await;
}

#[tokio::test]
async fn a_background_process_that_holds_the_output_does_not_block() {
    let bench = bench().await;
    let sandbox = bench.sandbox().await;
    let start = Instant::now();
    let (outcome, stdout, _) = run(&sandbox, Command::shell("sleep 500 & echo started")).await;
    assert_eq!((outcome.end, stdout.as_str()), (End::Exited(0), "started\n"));
    assert!(start.elapsed() < Duration::from_secs(100), "it waited for the background process");
    bench.close().await;
}

#[tokio::test]
async fn background_processes_live_on_or_end_as_asked() {
    let bench = bench().await;
    let sandbox = bench.sandbox().await;
    sh(&sandbox, "sleep 4001 >/dev/null 2>&1 & setsid sleep 4002 >/dev/null 2>&1 &").await;
    assert_eq!(count(&sandbox, "sleep 400").await, 2);
    let mut tidy = Command::shell("sleep 4011 >/dev/null 2>&1 & setsid sleep 4012 >/dev/null 2>&1 &");
    tidy.keep_background = false;
    let (outcome, ..) = run(&sandbox, tidy).await;
    assert_eq!((outcome.end, outcome.tree_killed), (End::Exited(0), None));
    assert_eq!((count(&sandbox, "sleep 400").await, count(&sandbox, "sleep 401").await), (2, 0));
    sandbox.kill_all().await.unwrap();
    assert_eq!(count(&sandbox, "sleep").await, 0);
    bench.close().await;
}

/// A server that sends back what it is sent, at a port of the sandbox's own loopback interface.
const ECHO: &str = r#"
import socket
server = socket.create_server(("127.0.0.1", 4000))
print("listening", flush=True)
while True:
    peer, _ = server.accept()
    try:
        while part := peer.recv(65536):
            peer.sendall(part)
    except OSError:
        pass
    peer.close()
"#;

#[tokio::test]
async fn a_port_inside_can_be_reached_and_stands_still_when_its_processes_do() {
    let bench = bench().await;
    let sandbox = bench.sandbox().await;
    let mut server = sandbox.exec(Command::new(["python3", "-c", ECHO])).unwrap();
    assert_eq!(server.next().await.unwrap(), Some(Event::Output(Stream::Stdout, b"listening\n".to_vec())));
    let exchange = async |bytes: Vec<u8>| {
        let connection = sandbox.connect(4000).unwrap();
        let input = connection.input();
        let send = async {
            assert!(input.send(&bytes).await);
            input.end();
        };
        let (answer, ()) = tokio::join!(connection.output(), send);
        let (outcome, back, _) = answer.unwrap();
        (outcome.end, back)
    };
    // More than all windows and buffers on the way hold.
    let bytes: Vec<u8> = (0..5_000_000_u32).map(|at| (at % 251) as u8).collect();
    assert_eq!(exchange(bytes.clone()).await, (End::Exited(0), bytes));

    sandbox.stop_all(true).await.unwrap();
    let states = "grep -h ^State: /proc/[0-9]*/status | grep -c T";
    assert_ne!(sh(&sandbox, states).await, "0\n");
    let waiting = tokio::time::timeout(Duration::from_millis(300), exchange(b"later".to_vec())).await;
    assert!(waiting.is_err(), "a stopped process has answered: {waiting:?}");
    sandbox.stop_all(false).await.unwrap();
    assert_eq!(exchange(b"again".to_vec()).await, (End::Exited(0), b"again".to_vec()));

    let nobody = sandbox.connect(4001).unwrap().outcome().await.unwrap();
    assert!(matches!(nobody.end, End::TransferFailed(_)), "{nobody:?}");
    bench.close().await;
}

#[tokio::test]
async fn commands_run_as_the_user_asked_for() {
    let bench = bench().await;
    let sandbox = bench.sandbox().await;
    assert_eq!(sh(&sandbox, "id -u").await, "0\n");
    let as_user = |user: User, script: &str| Command { user, cwd: None, ..Command::shell(script) };
    if bench.engine.facts().non_root_user() {
        sh(&sandbox, "useradd -m -s /bin/sh -G 100 agent && chown 1234:1234 /tmp").await;
        let (_, stdout, stderr) =
            run(&sandbox, as_user(User::Name("agent".into()), "id -un; id -G; pwd; echo $HOME; touch mine")).await;
        let uid = sh(&sandbox, "id -u agent").await;
        assert_eq!(stdout, format!("agent\n{} 100\n/home/agent\n/home/agent\n", uid.trim()), "{stderr}");
        let (_, stdout, _) =
            run(&sandbox, as_user(User::Ids { uid: 1234, gid: 5678 }, "id -u; id -g; cat /proc/1/environ")).await;
        assert_eq!(stdout, "1234\n5678\n", "the first process is none of its business");
        assert_eq!(sh(&sandbox, "su agent -c 'id -un'").await, "agent\n");
    } else {
        let error = sandbox.exec(as_user(User::Ids { uid: 1000, gid: 1000 }, "true")).err().unwrap();
        assert!(error.to_string().contains("only ids below 1"), "{error}");
        let (outcome, ..) = run(&sandbox, as_user(User::Name("nobody".into()), "true")).await;
        assert!(matches!(outcome.end, End::NotStarted(NotStarted::NoUser { .. })), "{outcome:?}");
    }
    bench.close().await;
}

#[tokio::test]
async fn a_command_measures_its_own_time() {
    let bench = bench().await;
    let sandbox = bench.sandbox().await;
    let (outcome, ..) =
        run(&sandbox, Command::shell("sleep 0.2; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done")).await;
    assert!(outcome.wall >= Duration::from_millis(200));
    assert!(outcome.cpu_user > Duration::ZERO && outcome.cpu_user < outcome.wall);
    assert!(outcome.max_rss > 100_000);
    bench.close().await;
}
