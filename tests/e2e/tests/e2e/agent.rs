//! The solver agent: a model that works, models that do not, gateways that fail, and a key that nobody sees.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::Signal;
use sandbox_bench_core::evidence::{Attempt, Cleanup};
use sandbox_bench_core::{AgentEnd, Decision, FailureClass, Spend, TokenCounts};
use sandbox_bench_e2e::command::until;
use sandbox_bench_e2e::docker::wanted;
use sandbox_bench_e2e::evidence::assert_hidden;
use sandbox_bench_e2e::gateway::{Asked, Gateway, KEY, Reply, SOLVED, call, scripted};
use sandbox_bench_e2e::processes::{self, Process, Sleeper, descendants};
use sandbox_bench_e2e::task::WANTS_DONE;
use sandbox_bench_e2e::{Bench, Outcome, World, assert_shown};
use serde_json::{Value, json};

/// A command line with the agent behind `gateway`.
fn bench(world: &World, gateway: &Gateway, rest: &str) -> Bench {
    let line = format!("run --backend local --solver agent --model-base-url {} --model-key-env E2E_KEY", gateway.url());
    world.bench(&format!("{line} {rest}")).env("E2E_KEY", KEY)
}

/// Runs one small task with a model that answers what `script` says; one attempt.
fn one(world: &World, options: &str, script: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> (Outcome, Attempt) {
    let _task = world.task("one", WANTS_DONE);
    let gateway = Gateway::start(script);
    let rest = format!("--dataset tasks --model scripted --attempts 1 {options}");
    let outcome = bench(world, &gateway, &rest).run();
    assert_eq!(gateway.refused(), Vec::<String>::new(), "the server refused requests");
    let run = world.last_run();
    run.validate();
    let attempt = run.attempt("one");
    assert_eq!(attempt.cleanup, Cleanup::Confirmed);
    (outcome, attempt)
}

/// What a model answers.
type Script = Box<dyn Fn(&Asked) -> Reply + Send + Sync>;

fn end(attempt: &Attempt) -> AgentEnd {
    attempt.agent.as_ref().expect("an agent's record").end
}

/// The transcript of an attempt.
fn trajectory(world: &World, attempt: &Attempt) -> Value {
    let output = attempt.outputs.iter().find(|output| output.name == "solver.trajectory").expect("a transcript");
    serde_json::from_slice(&world.last_run().output(output)).unwrap()
}

/// Does the work of the small task, then finishes.
fn works(asked: &Asked) -> Reply {
    [Reply::run("echo done >done")].get(asked.turn()).cloned().unwrap_or_else(Reply::finish)
}

#[test]
fn a_model_solves_bundled_tasks_and_the_evidence_says_how() {
    let world = World::new();
    let gateway = Gateway::start(scripted);
    let rest = format!("--dataset smoke --task {} --model scripted -j 2", SOLVED.join(","));
    let outcome = bench(&world, &gateway, &rest).run().exits(0);
    assert_eq!(gateway.refused(), Vec::<String>::new());
    let run = world.run();
    run.validate();
    assert_eq!(run.attempts().len(), SOLVED.len());
    for attempt in run.attempts() {
        let agent = attempt.agent.as_ref().unwrap();
        assert_eq!((agent.end, agent.model.as_str()), (AgentEnd::Finished, "scripted"));
        assert!(agent.tokens.is_some_and(|tokens| tokens.input > 0 && tokens.output > 0));
        let solve = attempt.phases.iter().find(|span| span.phase == sandbox_bench_core::Phase::Solve).unwrap();
        assert!(agent.model_us > 0 && agent.tool_us > 0 && agent.model_us + agent.tool_us <= solve.duration_us);
        assert!(
            solve.guest_us.is_some_and(|guest| guest <= agent.tool_us),
            "time in the sandbox is part of the tools'"
        );
        receipts_are_those_of_the_journal(&world, &attempt);
    }
    assert_eq!(run.json("manifest.json")["plan"]["models"], json!(["scripted"]));
    let cell = &run.json("summary.json")["cells"][0];
    assert_eq!(cell["model"], "scripted");
    assert_eq!(cell["pass_at"], json!([{ "k": 1, "tasks": SOLVED.len(), "estimate": 1.0 }]));
    assert!(outcome.stdout.contains("cost of the model unknown"), "{}", outcome.stdout);
}

/// Every receipt that the transcript names is in the journal, of the phase `solve`, and the other way round.
fn receipts_are_those_of_the_journal(world: &World, attempt: &Attempt) {
    let trajectory = trajectory(world, attempt);
    let steps = trajectory["steps"].as_array().unwrap();
    let results = steps.iter().flat_map(|step| step["observation"]["results"].as_array().cloned().unwrap_or_default());
    let mut named: Vec<u64> = results
        .flat_map(|result| result["extra"]["receipts"].as_array().cloned().unwrap_or_default())
        .map(|number| number.as_u64().unwrap())
        .collect();
    named.sort_unstable();
    let lines = world.last_run().lines("journal.jsonl");
    let receipts = lines.iter().filter(|line| line["event"] == "receipt" && line["tag"] == attempt.tag.to_string());
    let solving = receipts.map(|line| &line["receipt"]).filter(|receipt| receipt["phase"] == "solve");
    // Where the image alone knows the working directory, the harness asks for it first.
    let tools = solving.filter(|receipt| receipt["label"] != "working directory");
    assert_eq!(named, tools.map(|receipt| receipt["step"].as_u64().unwrap()).collect::<Vec<_>>());
}

#[test]
fn a_model_solves_them_in_containers_too() {
    if !wanted() {
        return;
    }
    let world = World::new();
    let gateway = Gateway::start(scripted);
    let rest = format!("--dataset smoke --task {} --model scripted -j 2", SOLVED.join(","));
    let line =
        format!("run --backend docker --solver agent --model-base-url {} --model-key-env E2E_KEY", gateway.url());
    let _ = world.bench(&format!("{line} {rest}")).env("E2E_KEY", KEY).run().exits(0);
    assert_eq!(gateway.refused(), Vec::<String>::new());
    let attempts = world.run().attempts();
    assert!(attempts.len() >= 6 && attempts.iter().all(Attempt::accepted));
}

#[test]
fn six_passes_of_the_whole_data_set_are_enough() {
    let world = World::new();
    let gateway = Gateway::start(scripted);
    let rest = "--dataset smoke --model scripted --stop-after-passes 6 --quiet --format json";
    // What the scripted model gives up on is rejected, and that is what exit code 1 says.
    let printed = bench(&world, &gateway, rest).run().exits(1).stdout;
    let summary: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(summary["totals"]["accepted"], 6);
    assert_eq!(summary["totals"]["failed"], 0);
    let accepted: Vec<Attempt> = world.run().attempts().into_iter().filter(Attempt::accepted).collect();
    assert_eq!(accepted.len(), 6);
    for attempt in &accepted {
        assert!(trajectory(&world, attempt)["steps"].as_array().unwrap().len() > 3);
        assert!(attempt.agent.as_ref().unwrap().tokens.is_some());
    }
}

#[test]
fn the_model_is_told_the_task_and_what_its_tools_did_and_nothing_else() {
    let world = World::new();
    let gateway = Gateway::start(|asked| match asked.turn() {
        0 => Reply::Calls(vec![
            call("run_command", json!({ "command": "pwd; ls -A / /tests /solution; seq 100000; exit 3" })),
            call("read_file", json!({ "path": "none" })),
            call("patch_file", json!({ "path": "none", "old": "a", "new": "b" })),
            call("write_file", json!({ "path": "deep/er/-x", "content": "one\ntwo\ntwo\n" })),
            call("patch_file", json!({ "path": "deep/er/-x", "old": "two", "new": "2" })),
            call("patch_file", json!({ "path": "deep/er/-x", "old": "one", "new": "1" })),
            call("read_file", json!({ "path": "deep/er/-x", "first_line": 1, "lines": 2 })),
            call("run_command", json!({ "command": "sleep 60", "timeout_seconds": 1 })),
        ]),
        _ => works(asked),
    });
    let _task = world.task("one", WANTS_DONE);
    let _ = bench(&world, &gateway, "--dataset tasks --model scripted --attempts 1").run().exits(1);
    assert_eq!(gateway.refused(), Vec::<String>::new());
    let told: Vec<String> = gateway.asked()[1].messages()[3..].iter().map(|m| m["content"].to_string()).collect();
    let said = |number: usize| serde_json::from_str::<String>(&told[number]).unwrap();
    assert!(said(0).starts_with("exit code 3\n"), "{}", said(0));
    assert!(
        said(0).contains("bytes left out") && said(0).len() < 20_000,
        "long output is shortened: {}",
        said(0).len()
    );
    assert!(said(0).contains("\n100000\n"), "its end is kept");
    assert!(said(0).contains("'/tests'") && said(0).contains("'/solution'"), "they are not there: {}", said(0));
    assert!(said(1).starts_with("failed with exit code"), "{}", said(1));
    assert!(said(2).starts_with("failed with exit code"), "{}", said(2));
    assert_eq!(said(3), "wrote deep/er/-x");
    assert!(said(4).contains("occurs 2 times"), "{}", said(4));
    assert_eq!(said(5), "wrote deep/er/-x");
    assert_eq!(said(6), "1\ntwo\n");
    assert!(said(7).starts_with("time limit exceeded"), "{}", said(7));
    let first = &gateway.asked()[0];
    assert!(first.task().starts_with("Write the word `done` to the file `done`."), "{}", first.task());
    assert!(first.task().contains("The working directory is /"), "{}", first.task());
    assert_eq!(first.messages().len(), 2);
}

#[test]
fn every_way_to_fail_at_a_task_has_its_name() {
    let says = |text: &str| Reply::Says(text.into());
    let broken = || Reply::Calls(vec![("run_command".into(), "{\"command\": \"ec".into())]);
    let cases: Vec<(AgentEnd, &str, Script)> = vec![
        (AgentEnd::NoAction, "", Box::new(move |_| says("I would do this and that."))),
        (AgentEnd::Empty, "", Box::new(|_| Reply::Says(String::new()))),
        (AgentEnd::Refused, "", Box::new(|_| Reply::Refuses("I can't help with that.".into()))),
        (AgentEnd::Malformed, "", Box::new(move |_| broken())),
        (AgentEnd::Malformed, "", Box::new(|_| Reply::call("functions.rm -rf", json!({})))),
        (AgentEnd::Malformed, "", Box::new(|_| Reply::call("", json!({})))),
        (AgentEnd::Looping, "", Box::new(|_| Reply::run("cat none"))),
        (AgentEnd::TurnLimit, "--max-turns 3", Box::new(|asked| Reply::run(&format!("echo {}", asked.number)))),
        (AgentEnd::TokenLimit, "--max-tokens 900", Box::new(|asked| Reply::run(&format!("echo {}", asked.number)))),
        (
            AgentEnd::CostLimit,
            "--max-cost 0.25",
            Box::new(|asked| Reply::Priced(Box::new(Reply::run(&format!("echo {}", asked.number))), 0.1)),
        ),
        (
            AgentEnd::ContextOverflow,
            "",
            Box::new(|_| Reply::error(400, "context_length_exceeded", "maximum context length is 8 tokens")),
        ),
    ];
    for (expected, options, script) in cases {
        let world = World::new();
        let (outcome, attempt) = one(&world, options, script);
        let outcome = outcome.exits(3);
        assert_eq!(end(&attempt), expected, "{}", outcome.stderr);
        let failure = attempt.failure.as_ref().unwrap();
        assert_eq!(failure.class, FailureClass::Solver, "{expected}: {}", failure.message);
        assert!(failure.message.contains(expected.name()), "{}", failure.message);
        assert_eq!(attempt.verdict.as_ref().unwrap().decision, Decision::Rejected, "the verifier looked all the same");
        assert_eq!(trajectory(&world, &attempt)["extra"]["end"], expected.name());
    }
}

#[test]
fn work_that_was_done_counts_however_the_model_ends() {
    let world = World::new();
    let talks = |asked: &Asked| if asked.turn() == 0 { works(asked) } else { Reply::Says("Done!".into()) };
    let (outcome, attempt) = one(&world, "", talks);
    let _ = outcome.exits(0);
    assert!(attempt.accepted());
    assert_eq!(end(&attempt), AgentEnd::NoAction);
}

#[test]
fn the_time_limit_ends_a_model_that_does_not_stop_talking() {
    let world = World::new();
    let (outcome, attempt) = one(&world, "--solver-timeout 2", |_| Reply::Babbles);
    let _ = outcome.exits(3);
    assert_eq!((end(&attempt), attempt.failure.unwrap().class), (AgentEnd::TimeLimit, FailureClass::Timeout));
}

#[test]
fn faults_that_pass_are_waited_for_and_counted() {
    let world = World::new();
    let fault = |asked: &Asked| match asked.number {
        1 | 2 => Reply::Error {
            status: 429,
            code: "rate_limit_exceeded".into(),
            message: "slow down".into(),
            headers: vec![("retry-after", "0".into())],
        },
        3 => Reply::Cut,
        4 => Reply::Garbage,
        5 => Reply::error(500, "server_error", "oops"),
        6 => works(asked),
        7 => Reply::ErrorInStream("provider went away".into()),
        _ => works(asked),
    };
    let (outcome, attempt) = one(&world, "", fault);
    let _ = outcome.exits(0);
    let agent = attempt.agent.unwrap();
    assert_eq!((agent.requests, agent.repeated_requests, agent.turns), (8, 6, 2));
    assert!(agent.waiting_us > 0);
}

#[test]
fn a_gateway_that_fails_for_good_is_no_rejection() {
    let limited = |retry: &str| Reply::Error {
        status: 429,
        code: "rate_limit_exceeded".into(),
        message: "slow down".into(),
        headers: vec![("retry-after", retry.into())],
    };
    let storm = limited("0");
    let cases: Vec<(&str, &str, Reply)> = vec![
        ("gateway_rate_limited", "", storm),
        ("gateway_rate_limited", "", limited("86400")),
        ("gateway_rate_limited", "", limited("Fri, 31 Dec 2100 23:59:59 GMT")),
        ("gateway_too_long", "", Reply::Flood(10 << 20)),
        ("gateway_silent", "--solver-timeout 2", Reply::Silence),
        ("gateway_failed", "--solver-timeout 2", Reply::error(500, "server_error", "oops")),
        ("gateway_garbage", "--solver-timeout 2", Reply::Garbage),
        ("gateway_cut", "--solver-timeout 2", Reply::Cut),
        ("gateway_refused", "", Reply::error(400, "unsupported", "tools are not supported by this model")),
        ("gateway_credentials", "", Reply::error(403, "forbidden", "no credits left")),
    ];
    for (kind, options, reply) in cases {
        let world = World::new();
        let (outcome, attempt) = one(&world, options, move |_| reply.clone());
        let outcome = outcome.exits(3);
        let failure = attempt.failure.as_ref().unwrap();
        assert_eq!(failure.error_kind.as_deref(), Some(kind), "{}", outcome.stderr);
        assert_eq!((failure.class, end(&attempt)), (FailureClass::Solver, AgentEnd::Gateway));
        assert!(attempt.verdict.is_none(), "nothing was verified, so nothing was rejected");
        assert_eq!(world.bench("reap").run().exits(0).stdout, "nothing to clean up\n");
    }
}

#[test]
fn a_gateway_that_is_not_there_is_told_with_its_address() {
    let world = World::new();
    let _task = world.task("one", WANTS_DONE);
    let line = "run --backend local --dataset tasks --solver agent --model m --model-base-url http://127.0.0.1:9/v1 \
                --attempts 1 --solver-timeout 2";
    let outcome = world.bench(line).run().exits(3);
    assert!(outcome.stderr.contains("http://127.0.0.1:9/v1: the gateway cannot be reached"), "{}", outcome.stderr);
}

#[test]
fn the_key_is_nowhere_even_if_the_gateway_sends_it_back() {
    let world = World::new();
    let sleeper = Sleeper::new();
    let command =
        format!("env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'; echo {KEY}; {} & wait", sleeper.command());
    let gateway = Gateway::start(move |asked| match asked.turn() {
        0 => Reply::Says(format!("My key is {KEY}.")),
        1 => Reply::call("write_file", json!({ "path": "key", "content": KEY })),
        2 => Reply::run(&command),
        3 => Reply::run("cat key >>notes; echo done >done"),
        4 if asked.number == 5 => Reply::error(500, "server_error", &format!("bad key {KEY}")),
        _ => Reply::Refuses(format!("I refuse {KEY}")),
    });
    let _task = world.task("one", WANTS_DONE);
    let running = bench(&world, &gateway, "-vv --dataset tasks --model scripted").start();
    sleeper.await_start();
    let shown: Vec<String> = processes::all().iter().map(|process| process.command_line()).collect();
    sleeper.running().iter().for_each(|process| process.signal(Signal::KILL));
    let outcome = running.wait().exits(0);
    assert!(!shown.iter().any(|line| line.contains(KEY)), "the key is in a command line");
    assert_hidden(KEY, world.path(), &[&outcome.stdout, &outcome.stderr]);
    // What went back to the gateway is what the model may have read of it in the sandbox.
    let echoed = gateway.asked().iter().any(|asked| asked.body.to_string().contains(KEY));
    assert!(!echoed, "the key came back into the conversation");
    let recording = world.bench(&format!("record {} one", world.run().argument())).run().exits(0);
    let trajectory = world.bench(&format!("record {} one --form trajectory", world.run().argument())).run().exits(0);
    assert!(!recording.stdout.contains(KEY) && !trajectory.stdout.contains(KEY));
}

#[test]
fn a_wrong_key_is_told_without_it_and_not_tried_again() {
    let world = World::new();
    let _task = world.task("one", WANTS_DONE);
    let gateway = Gateway::start(works);
    let wrong = "sk-wrong-canary-77aa31";
    let outcome = bench(&world, &gateway, "--dataset tasks --model scripted").env("E2E_KEY", wrong).run().exits(3);
    assert!(outcome.stderr.contains("the key was not accepted (HTTP 401)"), "{}", outcome.stderr);
    assert!(!outcome.stderr.contains(wrong) && !outcome.stdout.contains(wrong));
    assert!(!world.run().files().iter().any(|f| String::from_utf8_lossy(&fs::read(f).unwrap()).contains(wrong)));
    assert_eq!(gateway.refused().len(), 1);
    assert_eq!(world.run().attempts().len(), 1);
}

#[test]
fn an_interruption_waits_for_no_answer() {
    let world = World::new();
    let _task = world.task("one", WANTS_DONE);
    let gateway = Gateway::start(|_| Reply::Silence);
    let running = bench(&world, &gateway, "--dataset tasks --model scripted").start();
    until("a request", || (!gateway.asked().is_empty()).then_some(()));
    let started = descendants(running.id());
    running.signal(Signal::INT);
    let _ = running.wait_within(std::time::Duration::from_secs(30)).exits(130);
    assert!(!started.iter().any(Process::runs));
    let attempt = world.run().attempt("one");
    assert_eq!((end(&attempt), attempt.cleanup), (AgentEnd::Interrupted, Cleanup::Confirmed));
    assert_eq!(attempt.failure.unwrap().class, FailureClass::Interrupted);
}

#[test]
fn money_is_measured_estimated_or_unknown_and_budgets_hold() {
    let world = World::new();
    let (outcome, attempt) = one(&world, "", |asked| Reply::Priced(Box::new(works(asked)), 0.125));
    let _ = outcome.exits(0);
    assert_eq!(attempt.agent.unwrap().spend, Spend::Measured { usd: 0.25 });

    let prices = "date = '2026-11-01'\nsource = 'the list'\n[models.scripted]\ninput = 1000000\noutput = 0\n";
    world.write("prices.toml", prices);
    let (outcome, attempt) = one(&world, "--model-prices prices.toml", works);
    let _ = outcome.exits(0);
    let agent = attempt.agent.unwrap();
    let TokenCounts { input, .. } = agent.tokens.unwrap();
    assert_eq!(agent.spend, Spend::Estimated { usd: input as f64, prices: "the list, 2026-11-01".into() });

    let (outcome, attempt) = one(&world, "", |asked| Reply::Uncounted(Box::new(works(asked))));
    let _ = outcome.exits(0);
    let agent = attempt.agent.unwrap();
    assert_eq!(agent.tokens, None);
    assert!(matches!(agent.spend, Spend::Unknown { .. }));

    let (outcome, attempt) = one(&world, "--max-cost 1", works);
    let outcome = outcome.exits(3);
    assert!(outcome.stderr.contains("the limit of money cannot be kept"), "{}", outcome.stderr);
    assert!(attempt.verdict.is_none());
}

#[test]
fn models_are_a_dimension_with_pass_at_k_and_the_cost_of_an_accepted_trial() {
    let world = World::new();
    let _task = world.task("one", WANTS_DONE);
    // The second model gives up every other time.
    let begun = AtomicUsize::new(0);
    let gateway = Gateway::start(move |asked| {
        let begins = asked.body["model"] == "scripted-2" && asked.turn() == 0;
        let gives_up = begins && begun.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
        Reply::Priced(Box::new(if gives_up { Reply::finish() } else { works(asked) }), 0.01)
    });
    let rest = "--dataset tasks --model scripted,scripted-2 --replicates 4 --order sequential";
    let plan = bench(&world, &gateway, &format!("{rest} --dry-run")).run().exits(0).stdout;
    assert!(plan.contains("scripted-2") && plan.contains("trials 8"), "{plan}");
    assert!(gateway.asked().is_empty());
    let outcome = bench(&world, &gateway, rest).run().exits(1);
    assert_shown!("agent-models", outcome.stdout);
    let run = world.run();
    run.validate();
    let cells = run.json("summary.json")["cells"].clone();
    assert_eq!(cells[0]["pass_at"][0], json!({ "k": 1, "tasks": 1, "estimate": 1.0 }));
    let (accepted, usd) =
        (cells[1]["trials"]["accepted"].as_f64().unwrap(), cells[1]["agent"]["usd"].as_f64().unwrap());
    assert_eq!((accepted, usd), (2.0, 0.06));
    let pass = |place: usize| cells[1]["pass_at"][place]["estimate"].as_f64().unwrap();
    assert!((pass(0) - 0.5).abs() < 1e-9 && (pass(1) - 5.0 / 6.0).abs() < 1e-9, "{cells:#}");
    assert!((cells[1]["agent"]["usd_per_accepted"].as_f64().unwrap() - usd / accepted).abs() < 1e-9);
    let world = World::new();
    let _task = world.task("one", WANTS_DONE);
    let rest = "--dataset tasks --model scripted --replicates 4 --model-budget 0.03";
    let _ = bench(&world, &gateway, rest).run().exits(0);
    assert_eq!(world.run().attempts().len(), 2, "each trial costs 0.02");
}

#[test]
fn what_is_missing_for_an_agent_is_said_before_anything_is_made() {
    let world = World::new();
    let _task = world.task("one", WANTS_DONE);
    let run = "run --backend local --dataset tasks";
    let mut shown = String::new();
    for rest in [
        "--solver agent",
        "--solver agent --model-base-url http://127.0.0.1:9/v1",
        "--solver agent --model m --model-base-url http://127.0.0.1:9/v1 --model-key-env E2E_UNSET",
        "--solver agent --model m --model-base-url localhost:9",
        "--solver gold --model m",
        "--solver gold --max-cost 1",
        "--solver agent --max-cost 0",
        "--solver replay:none.json",
    ] {
        shown += &world.bench(&format!("{run} {rest}")).run().exits(2).shown();
    }
    assert_shown!("agent-missing", shown);
    assert!(world.runs().is_empty());
}

#[test]
fn a_command_solver_finds_its_model_in_a_variable() {
    let world = World::new();
    let _task = world.task("one", WANTS_DONE);
    let line = "run --backend local --dataset tasks --model good,bad --solver 'command:[ $BENCH_MODEL = good ] && echo done >done; true'";
    let _ = world.bench(line).run().exits(1);
    let accepted = |model: &str| {
        let attempts = world.run().attempts();
        attempts.iter().find(|a| a.trial.model.as_deref() == Some(model)).unwrap().accepted()
    };
    assert!(accepted("good") && !accepted("bad"));
}
