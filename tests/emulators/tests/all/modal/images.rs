//! Images: recipes, builds, ends.

use super::*;

use generic_result::GenericStatus;

#[tokio::test]
async fn dockerfile_commands_are_executed_on_their_base() {
    let workspace = Workspace::open().await;
    let secret = SecretGetOrCreateRequest {
        object_creation_type: 4,
        env_dict: [("TOKEN".into(), "hidden".into())].into(),
        app_id: workspace.app.clone(),
        ..Default::default()
    };
    let secret = workspace.control.clone().secret_get_or_create(workspace.ask(secret)).await.unwrap().into_inner();
    let base = workspace.base().await;
    let image = Image {
        context_files: vec![ImageContextFile { filename: "/given.txt".into(), data: b"given".into() }],
        build_args: [("WORD".into(), "argument".into())].into(),
        secret_ids: vec![secret.secret_id],
        ..on(
            &base,
            &[
                "ARG WORD=none",
                "ENV SEEN=$WORD",
                "COPY given.txt /copied",
                "WORKDIR /work",
                "RUN echo \"$WORD $TOKEN\" > built",
            ],
        )
    };
    let (id, log, result) = workspace.build(image.clone()).await;
    assert_eq!(result.status(), GenericStatus::Success, "{log}");
    assert!(log.contains("COPY given.txt"), "{log}");
    let made = workspace.create(&id).await;
    let script = "pwd; cat /copied built; echo $SEEN:$TOKEN";
    assert_eq!(workspace.run(&made, script).await, (0, "/work\ngivenargument hidden\nargument:\n".into()));
    let again = workspace.try_image(image).await.unwrap();
    assert_eq!((again.image_id, again.result.unwrap().status()), (id, GenericStatus::Success));
    workspace.close().await;
}

#[tokio::test]
async fn a_build_that_takes_longer_than_one_answer_is_joined_again_where_it_was() {
    let workspace = Workspace::open().await;
    let image = on(&workspace.base().await, &["RUN echo one; sleep 1; echo two"]);
    let made = workspace.try_image(image.clone()).await.unwrap();
    assert_eq!(made.result, None);
    let join = |last_entry_id: String| {
        let asked = ImageJoinStreamingRequest {
            image_id: made.image_id.clone(),
            timeout: 0.3,
            last_entry_id,
            include_logs_for_finished: false,
        };
        workspace.ask(asked)
    };
    let (mut log, mut entry, mut ends) = (String::new(), String::new(), 0);
    let result = loop {
        let mut parts = workspace.control.clone().image_join_streaming(join(entry.clone())).await.unwrap().into_inner();
        let mut result = None;
        while let Some(part) = parts.message().await.unwrap() {
            log.extend(part.task_logs.into_iter().map(|part| part.data));
            entry = if part.entry_id.is_empty() { entry } else { part.entry_id };
            result = part.result.or(result);
        }
        match result {
            Some(result) => break result,
            None => ends += 1,
        }
    };
    assert_eq!(result.status(), GenericStatus::Success);
    assert!(ends >= 2, "{ends} answers ended before the build");
    assert_eq!(log.matches("one\n").count(), 1, "{log}");
    let unbuilt = workspace.try_image(on(&made.image_id, &["RUN sleep 0.5"])).await.unwrap();
    let refused = workspace.try_create(workspace.create_request(&unbuilt.image_id)).await;
    assert_eq!(code(refused.map(|made| made.id)), Code::FailedPrecondition);
    workspace.close().await;
}

#[tokio::test]
async fn what_fails_says_why_and_is_built_anew() {
    let workspace = Workspace::open().await;
    let (_, _, result) = workspace.build(commands(&["FROM missing/none:1"])).await;
    assert_eq!(result.status(), GenericStatus::Failure);
    assert!(result.exception.contains("missing/none:1: not found"), "{result:?}");
    let image = on(&workspace.base().await, &["RUN echo seen; exit 3"]);
    let (first, log, result) = workspace.build(image.clone()).await;
    assert!(log.contains("seen\n") && result.exception.contains("exit code: 3"), "{log} {result:?}");
    workspace.flag(&format!("{CONTROL}ImageGetOrCreate"), "build-fails", 4);
    let (second, _, result) = workspace.build(image).await;
    assert_eq!(result.status(), GenericStatus::Timeout);
    assert_ne!(first, second);
    workspace.close().await;
}

#[tokio::test]
async fn deleted_and_expired_images_are_gone() {
    let workspace = Workspace::open().await;
    let made = workspace.create(&workspace.base().await).await;
    let known = async |id: &str| {
        let asked = ImageFromIdRequest { image_id: id.to_owned() };
        workspace.control.clone().image_from_id(workspace.ask(asked)).await.map(|image| image.into_inner().image_id)
    };
    let lasting = workspace.snapshot(&made, Uuid::new_v4(), Some(-1)).await.unwrap();
    let short = workspace.snapshot(&made, Uuid::new_v4(), Some(1)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(code(known(&short).await), Code::NotFound);
    assert_eq!(known(&lasting).await.unwrap(), lasting);
    let delete = || workspace.ask(ImageDeleteRequest { image_id: lasting.clone() });
    workspace.control.clone().image_delete(delete()).await.unwrap();
    assert_eq!(code(known(&lasting).await), Code::NotFound);
    assert_eq!(code(workspace.control.clone().image_delete(delete()).await), Code::NotFound);
    workspace.close().await;
}
