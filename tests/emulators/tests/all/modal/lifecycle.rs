//! Sandboxes from their creation to their end.

use super::*;

use std::collections::BTreeSet;

use generic_result::GenericStatus;
use prost::Message;
use sandbox_bench_emulators::machine::{MachineOptions, Machines};
use sandbox_bench_emulators::{Timing, faults};

impl Workspace {
    async fn list(&self, before_timestamp: f64, include_finished: bool) -> Vec<SandboxInfo> {
        let asked =
            SandboxListRequest { app_id: self.app.clone(), before_timestamp, include_finished, ..Default::default() };
        self.control.clone().sandbox_list_v2(self.ask(asked)).await.unwrap().into_inner().sandboxes
    }

    async fn access(&self, id: &str) -> Result<SandboxGetCommandRouterAccessResponse, Status> {
        let target = Some(sandbox_get_command_router_access_request::Target::SandboxId(id.to_owned()));
        let request = self.ask(SandboxGetCommandRouterAccessRequest { target });
        self.control.clone().sandbox_get_command_router_access(request).await.map(Response::into_inner)
    }
}

#[tokio::test]
async fn the_same_request_makes_one_sandbox_unless_the_script_wants_two() {
    let workspace = Workspace::open().await;
    let image = workspace.base().await;
    let same = async || {
        let mut request = workspace.ask(workspace.create_request(&image));
        request.metadata_mut().insert("x-idempotency-key", "one-key".parse().unwrap());
        workspace.control.clone().sandbox_create_v2(request).await.unwrap().into_inner().sandbox_id
    };
    let first = same().await;
    assert_eq!(same().await, first);
    workspace.flag(&format!("{CONTROL}SandboxCreateV2"), "idempotency-ignored", 0);
    assert_ne!(same().await, first);
    assert_eq!(workspace.list(0.0, true).await.len(), 2);
    workspace.close().await;
}

#[tokio::test]
async fn a_terminated_sandbox_is_known_but_nothing_runs_in_it() {
    let workspace = Workspace::open().await;
    let made = workspace.create(&workspace.base().await).await;
    let exec = workspace.start(&made, made.shell("echo begun; sleep 600")).await.unwrap();
    let waiting = async { tokio::join!(workspace.exit(&made, &exec), workspace.output(&made, &exec, 0)) };
    let (_, (exited, output)) = tokio::join!(workspace.terminate(&made.id), waiting);
    assert_eq!((code(exited), code(output)), (Code::NotFound, Code::NotFound));
    assert_eq!(workspace.wait(&made.id, 60.0).await.status(), GenericStatus::Terminated);
    assert_eq!(workspace.terminate(&made.id).await.unwrap().status(), GenericStatus::Terminated);
    assert_eq!(code(workspace.start(&made, made.shell("true")).await), Code::NotFound);
    assert_eq!(code(workspace.access(&made.id).await), Code::FailedPrecondition);
    assert_eq!(workspace.list(0.0, false).await, []);
    let [info] = workspace.list(0.0, true).await.try_into().unwrap();
    assert_eq!(info.task_info.unwrap().result.unwrap().status(), GenericStatus::Terminated);
    until("its machine is gone", || workspace.emulation.machines.alive().is_empty()).await;
    workspace.close().await;
}

#[tokio::test]
async fn the_end_of_the_main_process_and_of_the_time_are_the_sandboxs() {
    let workspace = Workspace::open().await;
    let image = workspace.base().await;
    let with = async |change: &dyn Fn(&mut Sandbox)| {
        let mut asked = workspace.create_request(&image);
        change(asked.definition.as_mut().unwrap());
        let made = workspace.try_create(asked).await.unwrap();
        let result = workspace.wait(&made.id, 60.0).await;
        (result.status(), result.exitcode)
    };
    let command = |script: &str| ["sh", "-c", script].map(str::to_owned).to_vec();
    assert_eq!(with(&|sandbox| sandbox.entrypoint_args = command("true")).await, (GenericStatus::Success, 0));
    assert_eq!(with(&|sandbox| sandbox.entrypoint_args = command("exit 4")).await, (GenericStatus::Failure, 4));
    assert_eq!(with(&|sandbox| sandbox.timeout_secs = 1).await.0, GenericStatus::Timeout);
    assert_eq!(with(&|sandbox| sandbox.idle_timeout_secs = Some(1)).await.0, GenericStatus::IdleTimeout);
    workspace.close().await;
}

#[tokio::test]
async fn a_sandbox_that_does_not_start_has_a_result_and_no_machine() {
    let workspace = Workspace::open().await;
    let image = workspace.base().await;
    for (status, expected) in [(0, GenericStatus::InitFailure), (8, GenericStatus::MemoryManagerEviction)] {
        workspace.flag(&format!("{CONTROL}SandboxCreateV2"), "start-fails", status);
        let made = workspace.create(&image).await;
        assert_eq!(code(workspace.start(&made, made.shell("true")).await), Code::NotFound);
        assert_eq!(workspace.wait(&made.id, 60.0).await.status(), expected);
    }
    assert_eq!(workspace.emulation.machines.alive(), Vec::<String>::new());
    workspace.close().await;
}

#[tokio::test]
async fn lists_come_in_pages_that_overlap_nowhere() {
    let options = ModalOptions { page: 2, ..ModalOptions::default() };
    let workspace = Workspace::with(emulation().await, options).await;
    let image = workspace.base().await;
    let mut made = BTreeSet::new();
    for _ in 0..5 {
        made.insert(workspace.create(&image).await.id);
    }
    let (mut found, mut before, mut pages) = (Vec::new(), 0.0, 0);
    loop {
        let page = workspace.list(before, false).await;
        let Some(last) = page.last() else { break };
        before = last.created_at;
        pages += 1;
        found.extend(page.into_iter().map(|sandbox| sandbox.id));
    }
    assert_eq!((pages, found.len()), (3, 5));
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), made);
    workspace.flag(&format!("{CONTROL}SandboxListV2"), "stale-list", 3_600_000);
    assert_eq!(workspace.list(0.0, false).await, []);
    workspace.close().await;
}

#[tokio::test]
async fn one_more_than_the_workspace_may_have_is_refused() {
    let options = ModalOptions { concurrent_sandboxes: 1, ..ModalOptions::default() };
    let workspace = Workspace::with(emulation().await, options).await;
    let image = workspace.base().await;
    let first = workspace.create(&image).await;
    let second = workspace.try_create(workspace.create_request(&image)).await;
    assert_eq!(code(second.map(|made| made.id)), Code::ResourceExhausted);
    workspace.terminate(&first.id).await;
    workspace.wait(&first.id, 60.0).await;
    workspace.create(&image).await;
    workspace.close().await;
}

#[tokio::test]
async fn throttling_says_when_to_come_back_and_does_nothing() {
    let workspace = Workspace::open().await;
    let image = workspace.base().await;
    workspace.flag(&format!("{CONTROL}SandboxCreateV2"), "throttle", 1500);
    let status = workspace.try_create(workspace.create_request(&image)).await.map(|made| made.id).unwrap_err();
    let details = RpcStatus::decode(status.details()).unwrap();
    let [any] = details.details.as_slice() else { panic!("{details:?}") };
    assert!(any.type_url.ends_with("/modal.client.RPCRetryPolicy"), "{any:?}");
    assert_eq!(RpcRetryPolicy::decode(any.value.as_slice()).unwrap().retry_after_secs, 1.5);
    assert_eq!((status.code(), details.code), (Code::ResourceExhausted, 8));
    assert_eq!(workspace.list(0.0, true).await, []);
    workspace.close().await;
}

#[tokio::test]
async fn a_create_whose_answer_is_lost_has_made_its_sandbox() {
    let workspace = Workspace::open().await;
    let image = workspace.base().await;
    let method = format!("{CONTROL}SandboxCreateV2");
    workspace.flag(&method, "late-status", 14);
    assert_eq!(
        code(workspace.try_create(workspace.create_request(&image)).await.map(|made| made.id)),
        Code::Unavailable
    );
    assert_eq!(workspace.list(0.0, false).await.len(), 1);
    workspace.emulation.faults.add(Rule::new("POST", &method, faults::Effect::LoseResponse).times(1)).unwrap();
    let lost = workspace.try_create(workspace.create_request(&image)).await.map(|made| made.id);
    assert!([Code::Unavailable, Code::Unknown, Code::Internal, Code::Cancelled].contains(&code(lost)));
    assert_eq!(workspace.list(0.0, false).await.len(), 2);
    workspace.close().await;
}

#[tokio::test]
async fn libmodal_clients_are_sent_to_https() {
    let workspace = Workspace::open().await;
    let image = workspace.base().await;
    let mut request = workspace.ask(workspace.create_request(&image));
    request.metadata_mut().insert("x-modal-client-type", "8".parse().unwrap());
    request.metadata_mut().insert("x-modal-libmodal-version", "modal-js/0.11.1".parse().unwrap());
    let made = workspace.control.clone().sandbox_create_v2(request).await.unwrap().into_inner();
    let https = workspace.server.base_url().replace("http:", "https:");
    assert_eq!(made.command_router_access.unwrap().url, https);
    assert_eq!(workspace.access(&made.sandbox_id).await.unwrap().url, workspace.server.base_url());
    workspace.close().await;
}

#[tokio::test]
async fn an_expired_router_token_is_refused_and_a_new_one_can_be_had() {
    let workspace = Workspace::open().await;
    let image = workspace.base().await;
    workspace.flag(&format!("{CONTROL}SandboxCreateV2"), "expired-token", 0);
    let made = workspace.create(&image).await;
    assert_eq!(code(workspace.start(&made, made.shell("true")).await), Code::Unauthenticated);
    let made = Made { token: workspace.access(&made.id).await.unwrap().jwt, ..made };
    assert_eq!(workspace.run(&made, "echo on").await, (0, "on\n".into()));
    workspace.close().await;
}

#[tokio::test]
async fn a_blocked_network_is_none_where_an_open_one_is_the_hosts() {
    let helper = Some(env!("CARGO_BIN_EXE_sandbox-emulator").into());
    let machines = Machines::open(MachineOptions { helper, host_network: true, ..Default::default() }).await.unwrap();
    let workspace = Workspace::with(Arc::new(Emulation::new(machines, Timing::default())), Default::default()).await;
    let image = workspace.base().await;
    let interfaces = "grep -c : /proc/net/dev";
    let open = workspace.create(&image).await;
    let host = std::fs::read_to_string("/proc/net/dev").unwrap().matches(':').count();
    assert_eq!(workspace.run(&open, interfaces).await.1, format!("{host}\n"));
    let mut asked = workspace.create_request(&image);
    let access = NetworkAccess { network_access_type: 2, ..Default::default() };
    asked.definition.as_mut().unwrap().network_access = Some(access);
    let blocked = workspace.try_create(asked).await.unwrap();
    assert_eq!(workspace.run(&blocked, interfaces).await.1, "1\n");
    workspace.close().await;
}
