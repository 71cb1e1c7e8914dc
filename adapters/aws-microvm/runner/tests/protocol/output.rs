//! Output by offset, by waiting, and as events.

use reqwest::Method;
use serde_json::{Value, json};

use super::support::*;

#[tokio::test]
async fn any_bytes_come_out_as_they_were_written_in_pieces_of_any_size() {
    let runner = Runner::start().await;
    let line = r"i=0; while [ $i -lt 256 ]; do printf '\000\377\012\342x'; i=$((i+1)); done";
    let done = runner.finish(shell("b", line)).await;
    let expected = b"\0\xff\n\xe2x".repeat(256);
    assert_eq!(bytes(&done["stdout"]), expected);
    let (mut offset, mut collected) = (0, Vec::new());
    while offset < 1280 {
        let piece = runner.look("b", &format!("stdout_offset={offset}&max_bytes=100")).await["stdout"].clone();
        assert_eq!(piece["offset"], offset);
        assert_eq!(piece["eof"], after(&piece) == 1280);
        collected.extend(bytes(&piece));
        offset = after(&piece);
    }
    assert_eq!(collected, expected);
}

#[tokio::test]
async fn of_a_flood_the_part_that_was_asked_for_survives_and_the_rest_is_counted() {
    let runner = Runner::start().await;
    let line = "i=0; while [ $i -lt 2000 ]; do echo line-$i; i=$((i+1)); done";
    let full: String = (0..2000).map(|i| format!("line-{i}\n")).collect();
    for (keep, part) in [("tail", &full[full.len() - 1000..]), ("head", &full[..1000])] {
        let mut job = shell(keep, line);
        job["max_output_bytes"] = 1000.into();
        job["keep"] = keep.into();
        let piece = runner.finish(job).await["stdout"].clone();
        assert_eq!(text(&piece), part);
        assert_eq!((&piece["total_bytes"], &piece["truncated"]), (&full.len().into(), &true.into()));
        let start = if keep == "tail" { full.len() - 1000 } else { 0 };
        assert_eq!((&piece["start_offset"], &piece["offset"]), (&start.into(), &start.into()));
    }
}

#[tokio::test]
async fn a_waiting_client_is_told_at_once_what_is_new() {
    let runner = Runner::start().await;
    let go = runner.path("go");
    let line = format!("echo first; while [ ! -e {go} ]; do sleep 0.02; done; echo second");
    runner.submit(&shell("w", &line)).await;
    let first = runner.look("w", "wait_ms=20000").await;
    assert_eq!((&first["state"], text(&first["stdout"])), (&"running".into(), "first\n".into()));
    let waiting = runner.look("w", "wait_ms=20000&stdout_offset=6");
    let (second, ()) = tokio::join!(waiting, async { std::fs::write(&go, "").unwrap() });
    assert_eq!((&second["stdout"]["offset"], text(&second["stdout"])), (&6.into(), "second\n".into()));
    // Without anything new it is told that after its time.
    runner.submit(&shell("s", "sleep 600")).await;
    assert_eq!(runner.look("s", "wait_ms=50").await["state"], "running");
}

/// The events of an answer.
fn events(text: &str) -> Vec<(String, Value)> {
    let field = |event: &str, name: &str| event.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned));
    let blocks = text.split("\n\n").filter_map(|event| Some((field(event, "event: ")?, field(event, "data: ")?)));
    blocks.map(|(name, data)| (name, serde_json::from_str(&data).unwrap())).collect()
}

#[tokio::test]
async fn events_tell_all_output_and_the_end_and_go_on_from_an_offset() {
    let runner = Runner::start().await;
    let line = "i=0; while [ $i -lt 30000 ]; do echo $i; i=$((i+1)); done; echo oops >&2; exit 5";
    runner.submit(&shell("e", line)).await;
    let full: String = (0..30000).map(|i| format!("{i}\n")).collect();
    for from in [0, 100_000] {
        let path = format!("/v1/jobs/e/events?stdout_offset={from}");
        let told = events(&runner.request(Method::GET, &path).send().await.unwrap().text().await.unwrap());
        let of = |stream: &str| -> Vec<u8> {
            told.iter().filter(|(_, data)| data["stream"] == stream).flat_map(|(_, data)| bytes(data)).collect()
        };
        assert_eq!(of("stdout"), full.as_bytes()[from..]);
        assert_eq!(of("stderr"), b"oops\n");
        let (name, end) = told.last().unwrap();
        assert_eq!((name.as_str(), &end["state"], &end["exit_code"]), ("exit", &"exited".into(), &5.into()));
        assert!(end.get("stdout").is_none());
    }
    refused(runner.request(Method::GET, "/v1/jobs/x/events").send().await.unwrap(), 404, "not_found").await;
}

#[tokio::test]
async fn events_that_are_cut_end_without_an_end() {
    let runner = Runner::start().await;
    runner.submit(&shell("c", "echo begun; exec sleep 600")).await;
    let mut answer = runner.request(Method::GET, "/v1/jobs/c/events").send().await.unwrap();
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    let first = String::from_utf8(answer.chunk().await.unwrap().unwrap().to_vec()).unwrap();
    assert_eq!(events(&first)[0].1["stream"], "stdout");
    drop(answer);
    assert_eq!(runner.look("c", "").await["state"], "running", "the command does not end with the connection");
    assert_eq!(json!(0), runner.look("c", "").await["stdout"]["offset"]);
}
