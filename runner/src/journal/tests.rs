#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind};
use std::process::{Command, Stdio};

use proptest::prelude::*;
use sandbox_bench_core::Tag;
use sandbox_bench_core::evidence::{Creates, Event, JournalLine};

use super::{JOURNAL, Journal};

fn intent(unit: &str) -> Event {
    Event::Intent { tag: Tag::new("run", unit), backend: "local".into(), creates: Creates::Sandbox }
}

fn read(run_dir: &std::path::Path) -> Vec<JournalLine> {
    let text = fs::read_to_string(run_dir.join(JOURNAL)).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "a torn line is left");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn committed_and_appended_lines_are_there_in_order_and_numbered() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::create(dir.path()).unwrap();
    assert_eq!(journal.commit(intent("a")).await.unwrap(), 1);
    assert_eq!(read(dir.path()).len(), 1, "a commit is on disk when it returns");
    journal.append(intent("b")).await.unwrap();
    assert_eq!(journal.commit(intent("c")).await.unwrap(), 3);
    journal.append(intent("d")).await.unwrap();
    journal.close().await.unwrap();

    let lines = read(dir.path());
    assert_eq!(lines.iter().map(|line| line.seq).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(
        lines.into_iter().map(|line| line.event).collect::<Vec<_>>(),
        [intent("a"), intent("b"), intent("c"), intent("d")]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_commits_get_a_number_each_that_is_the_number_of_their_line() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::create(dir.path()).unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for unit in 0..2000 {
        let journal = journal.clone();
        tasks.spawn(async move { (unit, journal.commit(intent(&unit.to_string())).await.unwrap()) });
    }
    let numbers = tasks.join_all().await;
    journal.close().await.unwrap();
    let lines = read(dir.path());
    assert_eq!(lines.len(), 2000);
    for (unit, seq) in numbers {
        let line = &lines[usize::try_from(seq).unwrap() - 1];
        assert_eq!((line.seq, &line.event), (seq, &intent(&unit.to_string())));
    }
}

#[tokio::test]
async fn a_run_directory_has_one_writer_and_shows_whether_it_is_alive() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(Journal::in_use(dir.path()).unwrap_err().kind(), ErrorKind::NotFound);
    let journal = Journal::create(dir.path()).unwrap();
    assert!(Journal::in_use(dir.path()).unwrap());
    assert_eq!(Journal::create(dir.path()).unwrap_err().kind(), ErrorKind::AlreadyExists);
    let busy = Journal::reopen(dir.path()).unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::ResourceBusy);
    assert!(busy.to_string().contains("still alive"), "{busy}");

    let other = journal.clone();
    journal.close().await.unwrap();
    assert!(!Journal::in_use(dir.path()).unwrap());
    assert!(other.append(intent("late")).await.is_err(), "a closed journal takes nothing");
    assert!(other.commit(intent("late")).await.is_err());
    other.close().await.unwrap();

    let again = Journal::reopen(dir.path()).unwrap();
    assert_eq!(again.commit(intent("reaped")).await.unwrap(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Cuts a journal at every possible place: no earlier line is lost, and writing goes on behind it.
    #[test]
    fn a_journal_torn_anywhere_is_repaired(cut in 0.0f64..=1.0, units in prop::collection::vec("[a-zé\"\\\\]{0,12}", 1..6)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(JOURNAL);
        let failed = |unit: &String| Event::CreateFailed {
            tag: Tag::new("run", "x"), error: unit.clone(), uncertain: true,
        };
        runtime.block_on(async {
            let journal = Journal::create(dir.path()).unwrap();
            for unit in &units {
                journal.append(failed(unit)).await.unwrap();
            }
            journal.close().await.unwrap();
        });
        let whole = fs::read(&path).unwrap();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        let cut = (whole.len() as f64 * cut) as usize;
        fs::write(&path, &whole[..cut]).unwrap();
        let complete = whole[..cut].iter().filter(|&&byte| byte == b'\n').count();

        let seq = runtime.block_on(async {
            let journal = Journal::reopen(dir.path()).unwrap();
            let seq = journal.commit(intent("next")).await.unwrap();
            journal.close().await.unwrap();
            seq
        });
        let lines = read(dir.path());
        prop_assert_eq!(seq, complete as u64 + 1);
        prop_assert_eq!(lines.len(), complete + 1);
        for (unit, line) in units.iter().take(complete).zip(&lines) {
            prop_assert_eq!(&line.event, &failed(unit));
        }
    }
}

#[test]
fn a_journal_whose_last_line_is_damaged_is_not_continued() {
    for damaged in ["{\"seq\":1,\"at\"\n", "{\"seq\":7}\n", "\n", "{\"seq\":1}\n{\"seq\":1}\n"] {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(JOURNAL), damaged).unwrap();
        let error = Journal::reopen(dir.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{damaged:?}: {error}");
        assert_eq!(fs::read_to_string(dir.path().join(JOURNAL)).unwrap(), damaged, "nothing was changed");
    }
}

/// Set in the processes that the tests below start from their own binary.
const CHILD: &str = "SANDBOX_BENCH_JOURNAL_CHILD";

/// This test, run again in a process of its own, with `prelude` executed by the shell before it.
fn child(test: &str, run_dir: &std::path::Path, prelude: &str) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("{prelude}\nexec \"$0\" --exact \"$1\" --nocapture")])
        .arg(std::env::current_exe().unwrap())
        .arg(format!("journal::tests::{test}"))
        .env(CHILD, run_dir);
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_writer_loses_no_committed_line() {
    if let Some(run_dir) = std::env::var_os(CHILD) {
        let journal = Journal::create(run_dir.as_ref()).unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        for writer in 0..4 {
            let journal = journal.clone();
            tasks.spawn(async move {
                for n in 0.. {
                    let unit = format!("{writer}-{n}");
                    let seq = journal.commit(intent(&unit)).await.unwrap();
                    println!("\ncommitted {seq} {unit}");
                }
            });
        }
        tasks.join_all().await;
    }

    let dir = tempfile::tempdir().unwrap();
    let mut writer =
        child("a_killed_writer_loses_no_committed_line", dir.path(), "").stdout(Stdio::piped()).spawn().unwrap();
    let mut committed = BTreeSet::new();
    let mut output = BufReader::new(writer.stdout.take().unwrap()).lines();
    let mut note = |line: std::io::Result<String>| {
        if let Some(rest) = line.unwrap().strip_prefix("committed ") {
            let (seq, unit) = rest.split_once(' ').unwrap();
            committed.insert((seq.parse::<u64>().unwrap(), unit.to_owned()));
        }
    };
    output.by_ref().take(400).for_each(&mut note);
    assert!(Journal::in_use(dir.path()).unwrap());
    writer.kill().unwrap();
    writer.wait().unwrap();
    // The last line told may be cut by the kill; all that is complete was promised.
    let rest: Vec<_> = output.collect();
    let complete = rest.len().saturating_sub(1);
    rest.into_iter().take(complete).for_each(&mut note);
    assert!(committed.len() >= 100);

    assert!(!Journal::in_use(dir.path()).unwrap(), "the lock ends with the process");
    let journal = Journal::reopen(dir.path()).unwrap();
    journal.close().await.unwrap();
    let lines = read(dir.path());
    for (seq, unit) in committed {
        let line = &lines[usize::try_from(seq).unwrap() - 1];
        assert_eq!((line.seq, &line.event), (seq, &intent(&unit)));
    }
}

#[tokio::test]
async fn a_full_disk_is_told_to_everyone_and_costs_no_earlier_line() {
    if let Some(run_dir) = std::env::var_os(CHILD) {
        let journal = Journal::create(run_dir.as_ref()).unwrap();
        let mut committed = 0;
        let error = loop {
            match journal.commit(intent("some unit")).await {
                Ok(seq) => committed = seq,
                Err(error) => break error,
            }
        };
        assert!(error.to_string().contains("cannot write"), "{error}");
        assert!(error.to_string().contains(JOURNAL), "{error}");
        assert_eq!(journal.append(intent("later")).await.unwrap_err().to_string(), error.to_string());
        assert_eq!(journal.commit(intent("later")).await.unwrap_err().to_string(), error.to_string());
        assert_eq!(journal.close().await.unwrap_err().to_string(), error.to_string());
        println!("\ncommitted {committed}");
        return;
    }

    // A limit on the size of files behaves as a full disk does: it takes a part of a write, then refuses the rest.
    let dir = tempfile::tempdir().unwrap();
    let output =
        child("a_full_disk_is_told_to_everyone_and_costs_no_earlier_line", dir.path(), "trap '' XFSZ; ulimit -f 20")
            .output()
            .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    let committed: u64 = text.lines().find_map(|line| line.strip_prefix("committed ")).unwrap().parse().unwrap();
    assert!(committed > 10);
    let lines = read(dir.path());
    assert_eq!(lines.len() as u64, committed);

    let journal = Journal::reopen(dir.path()).unwrap();
    assert_eq!(journal.commit(intent("with space again")).await.unwrap(), committed + 1);
}

#[tokio::test]
async fn an_appended_line_reaches_the_disk_though_nothing_follows_it() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::create(dir.path()).unwrap();
    journal.append(intent("a")).await.unwrap();
    // Bounded by the test harness alone: what is asserted is that it comes at all.
    while read(dir.path()).is_empty() {
        tokio::task::yield_now().await;
    }
    drop(journal);
    while Journal::in_use(dir.path()).unwrap() {
        tokio::task::yield_now().await;
    }
    assert_eq!(read(dir.path()).len(), 1);
}
