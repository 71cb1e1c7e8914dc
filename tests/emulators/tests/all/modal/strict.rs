//! What no correct client sends is refused and recorded.

use super::*;

use tonic::codegen::http::uri::PathAndQuery;

/// A call with any message to any method.
async fn call<T: prost::Message + Default + 'static>(workspace: &Workspace, path: String, message: T) -> Code {
    let mut grpc = tonic::client::Grpc::new(workspace.channel.clone());
    grpc.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<T, ()>::default();
    let path = PathAndQuery::from_maybe_shared(path).unwrap();
    code(grpc.unary(workspace.ask(message), path, codec).await)
}

#[tokio::test]
async fn requests_without_the_headers_of_a_client_are_violations() {
    let workspace = Workspace::open().await;
    let image = workspace.base().await;
    for (header, expected) in [
        ("x-modal-client-type", Code::InvalidArgument),
        ("x-modal-client-version", Code::InvalidArgument),
        ("x-modal-python-version", Code::InvalidArgument),
        ("x-idempotency-key", Code::InvalidArgument),
        ("x-modal-token-id", Code::Unauthenticated),
        ("x-modal-token-secret", Code::Unauthenticated),
        ("x-modal-auth-token", Code::Unauthenticated),
    ] {
        let mut request = workspace.ask(workspace.create_request(&image));
        request.metadata_mut().remove(header);
        let answer = workspace.control.clone().sandbox_create_v2(request).await;
        assert_eq!(code(answer), expected, "{header}");
        let violations = workspace.emulation.violations.all();
        assert!(violations.iter().any(|violation| violation.what.contains(header)), "{header}: {violations:?}");
        assert!(violations.iter().all(|violation| violation.request == format!("{CONTROL}SandboxCreateV2")));
        workspace.emulation.violations.clear();
    }
    let state = workspace.emulation.machines.alive();
    assert_eq!(state, Vec::<String>::new(), "nothing was made");
}

#[tokio::test]
async fn wrong_credentials_and_tokens_are_refused_without_being_violations() {
    let workspace = Workspace::open().await;
    let made = workspace.create(&workspace.base().await).await;
    let other = workspace.create(&workspace.base().await).await;
    for (header, value) in [("x-modal-token-secret", "as-wrong"), ("x-modal-auth-token", "a.b.c")] {
        let mut request = workspace.ask(SandboxWaitRequest { sandbox_id: made.id.clone(), timeout: 0.0 });
        request.metadata_mut().insert(header, value.parse().unwrap());
        assert_eq!(code(workspace.control.clone().sandbox_wait_v2(request).await), Code::Unauthenticated);
    }
    for token in ["a.b.c", &other.token, &workspace.auth] {
        let request = bearer(token, made.shell("true"));
        assert_eq!(code(workspace.router.clone().task_exec_start(request).await), Code::Unauthenticated);
    }
    workspace.close().await;
}

#[tokio::test]
async fn credentials_sent_to_the_router_are_a_violation() {
    let workspace = Workspace::open().await;
    let made = workspace.create(&workspace.base().await).await;
    let mut request = made.ask(made.shell("true"));
    request.metadata_mut().insert("x-modal-token-secret", "as-emulator".parse().unwrap());
    assert_eq!(code(workspace.router.clone().task_exec_start(request).await), Code::InvalidArgument);
    assert_eq!(workspace.emulation.violations.all().len(), 1);
}

#[tokio::test]
async fn unknown_methods_and_fields_are_violations() {
    let workspace = Workspace::open().await;
    assert_eq!(call(&workspace, format!("{CONTROL}SandboxCreate"), ()).await, Code::Unimplemented);
    // Field 6 is a secret's, not an app's.
    let secret = SecretGetOrCreateRequest { app_id: "ap-1".into(), ..Default::default() };
    assert_eq!(call(&workspace, format!("{CONTROL}AppGetOrCreate"), secret).await, Code::InvalidArgument);
    // One level down: field 5 of a sandbox are its resources, which have no field 1.
    let base = BaseImage { image_id: "im-1".into(), ..Default::default() };
    let image = Image { base_images: vec![base], ..Default::default() };
    let nested = ImageGetOrCreateRequest { image: Some(image), ..Default::default() };
    assert_eq!(call(&workspace, format!("{CONTROL}SandboxCreateV2"), nested).await, Code::InvalidArgument);
    let what: Vec<String> = workspace.emulation.violations.all().into_iter().map(|violation| violation.what).collect();
    assert_eq!(what.len(), 3, "{what:?}");
    assert!(what[0].contains("no such method"), "{what:?}");
    assert!(what[1].contains("modal.client.AppGetOrCreateRequest: there is no field 6"), "{what:?}");
    assert!(what[2].contains("there is no field 1 of modal.client.Resources"), "{what:?}");
}

#[tokio::test]
async fn commands_that_no_client_starts_are_violations() {
    let workspace = Workspace::open().await;
    let made = workspace.create(&workspace.base().await).await;
    let tool = |argument: &str| {
        let command = ["/__modal/.bin/modal-sandbox-fs-tools", argument].map(str::to_owned).to_vec();
        TaskExecStartRequest { command_args: command, ..made.shell("") }
    };
    let wrong = [
        TaskExecStartRequest { exec_id: "mine".into(), ..made.shell("") },
        TaskExecStartRequest { command_args: vec![], ..made.shell("") },
        TaskExecStartRequest { workdir: Some("relative".into()), ..made.shell("") },
        TaskExecStartRequest { stderr_config: 2, ..made.shell("") },
        TaskExecStartRequest { env: [("A".to_owned(), "1".to_owned())].into(), ..made.shell("") },
        tool("no JSON"),
        tool(r#"{"ReadFile":{"path":"relative"}}"#),
        tool(r#"{"ReadFile":{"path":"/a","more":1}}"#),
    ];
    for asked in &wrong {
        assert_eq!(code(workspace.start(&made, asked.clone()).await), Code::InvalidArgument, "{asked:?}");
    }
    for ttl in [None, Some(0), Some(-2)] {
        assert_eq!(code(workspace.snapshot(&made, Uuid::new_v4(), ttl).await), Code::InvalidArgument, "{ttl:?}");
    }
    assert_eq!(workspace.emulation.violations.all().len(), wrong.len() + 3);
}

#[tokio::test]
async fn sandboxes_that_cannot_be_are_refused() {
    let workspace = Workspace::open().await;
    let image = workspace.base().await;
    let request = |change: &dyn Fn(&mut Sandbox)| {
        let mut asked = workspace.create_request(&image);
        change(asked.definition.as_mut().unwrap());
        asked
    };
    let blocked_list = |sandbox: &mut Sandbox| {
        let allowed_domains = vec!["example.com".into()];
        sandbox.network_access = Some(NetworkAccess { network_access_type: 2, allowed_domains, ..Default::default() });
    };
    let limit_below_request = |sandbox: &mut Sandbox| {
        sandbox.resources = Some(Resources { memory_mb: 200, memory_mb_max: 100, ..Default::default() });
    };
    for asked in [
        request(&|sandbox| sandbox.timeout_secs = 86_401),
        request(&|sandbox| sandbox.timeout_secs = 0),
        request(&|sandbox| sandbox.entrypoint_args = vec!["x".repeat(65_537)]),
        request(&blocked_list),
        request(&limit_below_request),
    ] {
        assert_eq!(
            code(workspace.try_create(asked.clone()).await.map(|made| made.id)),
            Code::InvalidArgument,
            "{asked:?}"
        );
    }
    let missing = request(&|sandbox| sandbox.image_id = "im-0000000000000000000000".into());
    assert_eq!(code(workspace.try_create(missing).await.map(|made| made.id)), Code::NotFound);
    assert_eq!(workspace.emulation.violations.all(), [], "they make sense to nobody, but are well formed");
    for asked in [
        request(&|sandbox| sandbox.workdir = Some("relative".into())),
        request(&|sandbox| sandbox.network_access = None),
        request(&|sandbox| sandbox.name = Some("no name".into())),
        SandboxCreateV2Request {
            secret_sources: vec![SecretSource {
                source: Some(secret_source::Source::Env(StringMap { contents: [("1A".into(), String::new())].into() })),
            }],
            ..request(&|_| ())
        },
    ] {
        assert_eq!(code(workspace.try_create(asked).await.map(|made| made.id)), Code::InvalidArgument);
    }
    assert_eq!(workspace.emulation.violations.all().len(), 4);
}
