//! Commands, their streams, and saved files.

use super::*;

use sandbox_bench_emulators::modal::proto::task_command_router::task_exec_stdin_write_stream_request::Payload;

fn stream(payloads: Vec<Payload>) -> Vec<TaskExecStdinWriteStreamRequest> {
    payloads.into_iter().map(|payload| TaskExecStdinWriteStreamRequest { payload: Some(payload) }).collect()
}

impl Workspace {
    async fn write(&self, made: &Made, exec: &str, offset: u64, data: &str, eof: bool) -> Result<(), Status> {
        let asked = TaskExecStdinWriteRequest {
            task_id: made.task.clone(),
            exec_id: exec.into(),
            offset,
            data: data.into(),
            eof,
        };
        self.router.clone().task_exec_stdin_write(made.ask(asked)).await.map(drop)
    }

    async fn stdin(&self, made: &Made, exec: &str) -> (u64, bool) {
        let asked = TaskExecStdinStatusRequest { task_id: made.task.clone(), exec_id: exec.into() };
        let status = self.router.clone().task_exec_stdin_status(made.ask(asked)).await.unwrap().into_inner();
        (status.num_bytes_written, status.closed)
    }

    async fn write_stream(&self, made: &Made, payloads: Vec<Payload>) -> Result<(), Status> {
        let messages = tokio_stream(stream(payloads));
        self.router.clone().task_exec_stdin_write_stream(made.ask(messages)).await.map(drop)
    }
}

fn tokio_stream<T: Send + 'static>(items: Vec<T>) -> impl futures_util::Stream<Item = T> + Send {
    futures_util::stream::iter(items)
}

fn start_at(made: &Made, exec: &str, offset: u64) -> Payload {
    Payload::Start(TaskExecStdinWriteStreamStart { task_id: made.task.clone(), exec_id: exec.into(), offset })
}

#[tokio::test]
async fn a_start_that_is_sent_again_starts_nothing() {
    let workspace = Workspace::open().await;
    let made = workspace.create(&workspace.base().await).await;
    let asked = made.shell("echo ran >> /tmp/runs");
    for _ in 0..3 {
        workspace.start(&made, asked.clone()).await.unwrap();
    }
    assert_eq!(workspace.exit(&made, &asked.exec_id).await.unwrap(), 0);
    assert_eq!(workspace.run(&made, "cat /tmp/runs").await, (0, "ran\n".into()));
    workspace.close().await;
}

#[tokio::test]
async fn output_is_read_from_any_offset_as_often_as_one_likes() {
    let workspace = Workspace::open().await;
    let made = workspace.create(&workspace.base().await).await;
    let exec = workspace.start(&made, made.shell("printf 0123; sleep 0.2; printf 4567")).await.unwrap();
    let (whole, rest) = tokio::join!(workspace.output(&made, &exec, 0), workspace.output(&made, &exec, 2));
    assert_eq!((whole.unwrap().as_slice(), rest.unwrap().as_slice()), (&b"01234567"[..], &b"234567"[..]));
    assert_eq!(workspace.output(&made, &exec, 6).await.unwrap(), b"67", "also after its end");
    workspace.flag(&format!("{ROUTER}TaskExecStdioRead"), "stdio-cut", 3);
    assert_eq!(code(workspace.output(&made, &exec, 0).await), Code::Unavailable);
    workspace.flag(&format!("{ROUTER}TaskExecStdioRead"), "stdio-fails", 0);
    assert_eq!(code(workspace.output(&made, &exec, 0).await), Code::Internal);
    workspace.close().await;
}

#[tokio::test]
async fn input_is_written_once_however_often_it_is_sent() {
    let workspace = Workspace::open().await;
    let made = workspace.create(&workspace.base().await).await;
    let exec = workspace.start(&made, made.shell("cat")).await.unwrap();
    workspace.write(&made, &exec, 0, "abc", false).await.unwrap();
    workspace.write(&made, &exec, 0, "abc", false).await.unwrap();
    workspace.write(&made, &exec, 1, "bcd", false).await.unwrap();
    assert_eq!(code(workspace.write(&made, &exec, 9, "x", false).await), Code::FailedPrecondition);
    assert_eq!(workspace.stdin(&made, &exec).await, (4, false));
    let wrong = vec![start_at(&made, &exec, 3), Payload::End(TaskExecStdinWriteStreamEnd {})];
    assert_eq!(code(workspace.write_stream(&made, wrong).await), Code::FailedPrecondition);
    // A stream that ends without its end leaves the input open.
    let half = vec![start_at(&made, &exec, 4), Payload::Data("ef".into())];
    assert_eq!(code(workspace.write_stream(&made, half).await), Code::Aborted);
    assert_eq!(workspace.stdin(&made, &exec).await, (6, false));
    let rest = vec![start_at(&made, &exec, 6), Payload::Data("g".into()), Payload::End(TaskExecStdinWriteStreamEnd {})];
    workspace.write_stream(&made, rest).await.unwrap();
    assert_eq!(workspace.stdin(&made, &exec).await, (7, true));
    assert_eq!(workspace.output(&made, &exec, 0).await.unwrap(), b"abcdefg");
    assert_eq!(workspace.exit(&made, &exec).await.unwrap(), 0);
    let late = vec![start_at(&made, &exec, 7), Payload::Data("h".into())];
    assert_eq!(code(workspace.write_stream(&made, late).await), Code::FailedPrecondition);
    workspace.close().await;
}

#[tokio::test]
async fn asking_for_the_state_of_the_input_ends_the_stream_that_writes() {
    let workspace = Workspace::open().await;
    let made = workspace.create(&workspace.base().await).await;
    let exec = workspace.start(&made, made.shell("cat")).await.unwrap();
    let begun = stream(vec![start_at(&made, &exec, 0), Payload::Data("abc".into())]);
    // It never ends by itself.
    let messages = futures_util::StreamExt::chain(tokio_stream(begun), futures_util::stream::pending());
    let mut router = workspace.router.clone();
    let writing = router.task_exec_stdin_write_stream(made.ask(messages));
    let watching = async {
        while workspace.stdin(&made, &exec).await.0 < 3 {
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    };
    let (written, ()) = tokio::join!(writing, watching);
    assert_eq!(code(written), Code::Aborted);
    workspace.close().await;
}

#[tokio::test]
async fn a_limit_kills_the_command_with_its_tree() {
    let workspace = Workspace::open().await;
    let made = workspace.create(&workspace.base().await).await;
    let asked = TaskExecStartRequest { timeout_secs: Some(1), ..made.shell("sleep 71.5 & sleep 71.5") };
    let exec = workspace.start(&made, asked).await.unwrap();
    assert_eq!(workspace.exit(&made, &exec).await.unwrap(), 137);
    let (_, left) = workspace.run(&made, "cat /proc/[0-9]*/cmdline | tr '\\0' '\\n' | grep -c '^71.5$'").await;
    assert_eq!(left, "0\n");
    workspace.close().await;
}

#[tokio::test]
async fn files_are_saved_once_for_one_id_and_the_main_process_goes_on() {
    let workspace = Workspace::open().await;
    let image = workspace.base().await;
    let mut asked = workspace.create_request(&image);
    let main = "echo started >> /root/starts; exec sleep 600";
    asked.definition.as_mut().unwrap().entrypoint_args = ["sh", "-c", main].map(str::to_owned).to_vec();
    let made = workspace.try_create(asked).await.unwrap();
    assert_eq!(workspace.run(&made, "until [ -e /root/starts ]; do sleep 0.05; done; echo kept > /kept").await.0, 0);
    let id = Uuid::new_v4();
    let saved = workspace.snapshot(&made, id, Some(-1)).await.unwrap();
    assert_eq!(workspace.snapshot(&made, id, Some(-1)).await.unwrap(), saved);
    assert_ne!(workspace.snapshot(&made, Uuid::new_v4(), Some(600)).await.unwrap(), saved);
    assert_eq!(workspace.wait(&made.id, 0.0).await.status, 0, "it still runs");
    assert_eq!(workspace.run(&made, "cat /kept").await, (0, "kept\n".into()));
    let copy = workspace.create(&saved).await;
    assert_eq!(workspace.run(&copy, "cat /kept /root/starts").await, (0, "kept\nstarted\n".into()));
    workspace.close().await;
}
