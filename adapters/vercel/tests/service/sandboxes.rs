//! Sandboxes that are made, found and ended on bad days: nothing is forgotten, and nothing is said that is not so.

use std::time::Duration;

use sandbox_bench_core::{
    Created, Destruction, Error, ErrorKind, Resources, Result, SandboxRef, SandboxSpec, Source, TagQuery, TailSink,
};
use serde_json::json;

use crate::script::{
    NAMED, Reply, SESSION, Scripted, TOKEN, always, call, ok, opened, reference, refusal, sandbox, session, tag,
};

const CREATE: &str = "POST /v3/sandboxes";

async fn create(replies: Vec<(&str, Reply)>) -> (Scripted, Result<Created>) {
    let service = Scripted::new(replies).await;
    let spec = SandboxSpec::new(tag(), Source::Base);
    let created = service.backend.create(&call(), &spec, &TailSink::new(0)).await;
    (service, created)
}

fn kind<T>(result: Result<T>) -> ErrorKind {
    result.err().unwrap().kind().clone()
}

#[tokio::test]
async fn a_request_says_all_that_was_asked_for() {
    let service = Scripted::new(vec![(CREATE, ok(opened("running")))]).await;
    let spec = SandboxSpec {
        resources: Resources { cpus: Some(3.0), ..Resources::default() },
        env: [("A".to_owned(), "1".to_owned())].into(),
        workdir: Some("/app".into()),
        lifetime: Duration::from_secs(90),
        ..SandboxSpec::new(tag(), Source::Artifact("snap_1".into()))
    };
    let created = service.backend.create(&call(), &spec, &TailSink::new(0)).await.unwrap();
    assert_eq!(created.facts.resolved_source, "snap_1");
    assert_eq!(
        service.bodies(CREATE),
        [json!({
            "projectId": "prj_p", "name": "sbx-run--unit", "ports": [], "timeout": 90_000, "resources": {"vcpus": 4},
            "persistent": false, "env": {"A": "1"}, "networkPolicy": {"mode": "allow-all"},
            "tags": {"sandbox-bench": "sbx-run--unit", "sandbox-bench-workdir": "/app"},
            "source": {"type": "snapshot", "snapshotId": "snap_1"},
        })]
    );
}

#[tokio::test]
async fn a_create_whose_answer_is_lost_is_found_by_its_name_or_uncertain() {
    let get = format!("GET {NAMED}");
    for lost in [Reply::Lost, Reply::Text(502, "<html>"), Reply::Text(500, "")] {
        let (service, created) = create(vec![(CREATE, lost), (&get, ok(opened("running")))]).await;
        assert_eq!(created.unwrap().sandbox.reference(), &reference());
        assert_eq!(service.count(CREATE), 1);
    }
    let (service, created) = create(vec![(CREATE, Reply::Lost), (&get, refusal(404, "not_found"))]).await;
    assert_eq!(kind(created), ErrorKind::UncertainSubmission { tag: tag() });
    assert_eq!(service.count(CREATE), 1);
}

#[tokio::test]
async fn refusals_to_create_say_what_to_do() {
    let refused = async |reply| create(vec![(CREATE, reply)]).await.1.err().unwrap();
    let error: Error = refused(refusal(402, "payment_required")).await;
    assert!(*error.kind() == ErrorKind::Capacity && error.to_string().contains("billing"), "{error}");
    let error = refused(refusal(403, "forbidden")).await;
    assert!(*error.kind() == ErrorKind::Credentials && error.to_string().contains("VERCEL_TEAM_ID"), "{error}");
    assert!(!format!("{error} {error:?}").contains(TOKEN));
    let error = refused(refusal(409, "conflict")).await;
    assert!(*error.kind() == ErrorKind::InvalidRequest && error.to_string().contains("destroy it first"), "{error}");
    assert_eq!(*refused(refusal(409, "image_not_ready")).await.kind(), ErrorKind::Unavailable);
    assert_eq!(*refused(refusal(429, "rate_limited")).await.kind(), ErrorKind::RateLimited { retry_after: None });
    let error = refused(refusal(400, "bad_request")).await;
    assert!(
        *error.kind() == ErrorKind::InvalidRequest && error.to_string().contains("words of the service"),
        "{error}"
    );

    let service = Scripted::new(vec![(CREATE, always(refusal(410, "snapshot_not_found")))]).await;
    let spec = SandboxSpec::new(tag(), Source::Artifact("snap_gone".into()));
    let error = service.backend.create(&call(), &spec, &TailSink::new(0)).await.err().unwrap();
    assert!(*error.kind() == ErrorKind::NotFound && error.to_string().contains("snap_gone"), "{error}");
}

#[tokio::test]
async fn an_end_is_confirmed_only_when_the_service_shows_nothing_any_more() {
    let (get, delete, stop) = (format!("GET {NAMED}"), format!("DELETE {NAMED}"), format!("POST {SESSION}/stop"));
    let mut stopped = session("stopped");
    stopped["activeCpuDurationMs"] = json!(1234);
    stopped["networkTransfer"] = json!({ "ingress": 5, "egress": 7 });
    let service = Scripted::new(vec![
        (&get, ok(opened("running"))),
        (&stop, ok(json!({ "session": session("stopping") }))),
        (&format!("GET {SESSION}"), ok(json!({ "session": stopped }))),
        (&delete, ok(json!({ "sandbox": sandbox("stopped", &[]) }))),
        (&get, ok(opened("stopped"))),
        (&get, refusal(404, "not_found")),
    ])
    .await;
    let asking = call();
    assert_eq!(service.backend.destroy(&asking, &reference()).await.unwrap(), Destruction::Confirmed);
    let facts = asking.meter.cost_facts();
    assert_eq!((facts["active_cpu_ms"].as_str(), facts["network_egress_bytes"].as_str()), ("1234", "7"));
    assert_eq!(service.bodies(&stop), [json!({})]);
    assert!(!service.asked().iter().any(|asked| asked.contains("deleteOrphanSnapshots")));
    assert_eq!(service.backend.destroy(&call(), &reference()).await.unwrap(), Destruction::Confirmed, "gone already");

    let stubborn = Scripted::new(vec![
        (&get, always(ok(opened("stopped")))),
        (&delete, always(ok(json!({ "sandbox": sandbox("stopped", &[]) })))),
    ])
    .await;
    let short = call().within(Duration::from_secs(2));
    assert!(matches!(stubborn.backend.destroy(&short, &reference()).await.unwrap(), Destruction::Unconfirmed { .. }));
}

#[tokio::test]
async fn a_sandbox_that_cannot_be_stopped_is_deleted_all_the_same() {
    let (get, delete, stop) = (format!("GET {NAMED}"), format!("DELETE {NAMED}"), format!("POST {SESSION}/stop"));
    let service = Scripted::new(vec![
        (&get, ok(opened("running"))),
        (&stop, Reply::Text(500, "")),
        (&delete, ok(json!({ "sandbox": sandbox("stopped", &[]) }))),
    ])
    .await;
    assert_eq!(service.backend.destroy(&call(), &reference()).await.unwrap(), Destruction::Confirmed);
}

#[tokio::test]
async fn what_is_not_ours_is_neither_found_nor_attached_nor_deleted() {
    let mut foreign = opened("running");
    foreign["sandbox"]["tags"] = json!({});
    let service = Scripted::new(vec![(&format!("GET {NAMED}"), always(ok(foreign)))]).await;
    assert_eq!(kind(service.backend.destroy(&call(), &reference()).await), ErrorKind::InvalidRequest);
    assert_eq!(kind(service.backend.attach(&call(), &reference()).await), ErrorKind::NotFound);
    assert!(service.backend.find(&call(), &TagQuery::Exact(tag())).await.unwrap().is_empty());
    let other = SandboxRef { id: "somebody-elses".into(), ..reference() };
    assert_eq!(service.backend.destroy(&call(), &other).await.unwrap(), Destruction::Confirmed);
    assert!(!service.asked().iter().any(|asked| asked.starts_with("DELETE") || asked.contains("somebody")));
}

#[tokio::test]
async fn preflight_shows_whether_the_service_takes_us() {
    let list = "GET /v2/sandboxes";
    let nothing = json!({ "sandboxes": [], "pagination": { "count": 0, "next": null } });
    let service =
        Scripted::new(vec![(list, ok(nothing)), (list, refusal(401, "forbidden")), (list, Reply::Text(503, "<html>"))])
            .await;
    let found = service.backend.preflight(&call()).await.unwrap();
    assert_eq!(found.identity.as_deref(), Some("team team_t, project prj_p"));
    assert!(found.clock_offset.is_some_and(|offset| offset.as_secs().abs() < 60));
    assert_eq!(kind(service.backend.preflight(&call()).await), ErrorKind::Credentials);
    assert_eq!(kind(service.backend.preflight(&call()).await), ErrorKind::Unavailable);
}
