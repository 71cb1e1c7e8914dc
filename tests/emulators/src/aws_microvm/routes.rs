//! From a request to its operation, and what holds for all of them.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::Aws;
use super::error::{ApiError, Kind, Result};
use super::operations::Operation;
use super::shape::{Member, Misfit, Shape, message, misfits};
use super::signature::{self, Distrust, Service};
use crate::faults::Flags;

/// Bytes of a request's body at most: 4096 characters of a payload are the longest that a request holds, beside an
/// environment of 100 values.
const BODY: usize = 1 << 20;
/// Names a request in answers and logs.
const REQUEST_ID: &str = "x-amzn-requestid";

/// A request whose signature, shape and rate are fine.
pub(super) struct Ask {
    pub(super) operation: &'static Operation,
    /// Of the path, decoded, in their order.
    pub(super) labels: Vec<String>,
    pub(super) query: Map<String, Value>,
    /// `null` where there is none.
    pub(super) body: Value,
    pub(super) flags: Flags,
}

impl Ask {
    /// A label of the path.
    pub(super) fn label(&self, at: usize) -> &str {
        self.labels.get(at).map_or("", String::as_str)
    }
}

pub(super) async fn answer(State(aws): State<Arc<Aws>>, request: Request<Body>) -> Response {
    let label = format!("{} {}", request.method(), request.uri().path());
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    if host.ends_with(".on.aws") {
        let host = host.to_owned();
        return aws.proxy(&host, request).await;
    }
    if signature::claimed_service(request.headers()) == Some(Service::S3) {
        return aws.object(request).await;
    }
    let mut response = aws.control(request).await.unwrap_or_else(|error| {
        if error.violation {
            aws.emulation.violations.record(label, error.message.clone().unwrap_or_default());
        }
        error.into_response()
    });
    if let Ok(id) = HeaderValue::try_from(Uuid::new_v4().to_string()) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

impl Aws {
    async fn control(self: &Arc<Self>, request: Request<Body>) -> Result<Response> {
        let (head, body) = request.into_parts();
        let body = axum::body::to_bytes(body, BODY).await;
        let body = body.map_err(|_| ApiError::violation(Kind::Serialization, "The request body is too large"))?;
        let digest = signature::digest(&body);
        signature::verify(&self.options, Service::Lambda, &head.method, &head.uri, &head.headers, &digest)
            .map_err(distrusted)?;
        let path = head
            .uri
            .path()
            .trim_start_matches('/')
            .split('/')
            .map(|segment| percent_decode_str(segment).decode_utf8().map(std::borrow::Cow::into_owned));
        let path: Vec<String> = path.collect::<std::result::Result<_, _>>().map_err(|_| ApiError::no_operation())?;
        let (operation, labels) = Operation::find(head.method.as_str(), &path).ok_or_else(ApiError::no_operation)?;
        let query = query(operation, head.uri.query().unwrap_or_default())?;
        let body = match operation.body {
            Some(members) => document(members, &body)?,
            None if body.is_empty() => Value::Null,
            None => return Err(ApiError::violation(Kind::Serialization, "The operation takes no body")),
        };
        self.limiter.take(operation.name)?;
        let flags = head.extensions.get::<Flags>().cloned().unwrap_or_default();
        let value = self.perform(Ask { operation, labels, query, body, flags })?;
        let status = StatusCode::from_u16(operation.status).unwrap_or_default();
        Ok(if status == StatusCode::NO_CONTENT {
            status.into_response()
        } else {
            (status, axum::Json(value)).into_response()
        })
    }

    fn perform(self: &Arc<Self>, ask: Ask) -> Result<Value> {
        match ask.operation.name {
            "CreateMicrovmImage" => self.create_image(&ask),
            "UpdateMicrovmImage" => self.update_image(&ask),
            "GetMicrovmImage" => self.get_image(&ask),
            "ListMicrovmImages" => self.list_images(&ask),
            "DeleteMicrovmImage" => self.delete_image(&ask),
            "GetMicrovmImageVersion" => self.get_version(&ask),
            "ListMicrovmImageVersions" => self.list_versions(&ask),
            "UpdateMicrovmImageVersion" => self.update_version(&ask),
            "DeleteMicrovmImageVersion" => self.delete_version(&ask),
            "ListMicrovmImageBuilds" => self.list_builds(&ask),
            "GetMicrovmImageBuild" => self.get_build(&ask),
            "ListManagedMicrovmImages" => self.list_managed(&ask),
            "ListManagedMicrovmImageVersions" => self.list_managed_versions(&ask),
            "RunMicrovm" => self.run(&ask),
            "GetMicrovm" => self.get_microvm(&ask),
            "ListMicrovms" => self.list_microvms(&ask),
            "SuspendMicrovm" => self.suspend_microvm(&ask),
            "ResumeMicrovm" => self.resume_microvm(&ask),
            "TerminateMicrovm" => self.terminate_microvm(&ask),
            "CreateMicrovmAuthToken" => self.create_token(&ask),
            "CreateMicrovmShellAuthToken" => self.create_shell_token(&ask),
            "ListTags" => self.list_tags(&ask),
            "TagResource" => self.tag(&ask),
            "UntagResource" => self.untag(&ask),
            _ => Err(ApiError::no_operation()),
        }
    }
}

/// As every AWS service answers; which of them are mistakes that no client makes.
fn distrusted(distrust: Distrust) -> ApiError {
    match distrust {
        Distrust::Missing => ApiError::violation(Kind::MissingToken, "Missing Authentication Token"),
        Distrust::Unrecognized => {
            ApiError::new(Kind::UnrecognizedClient, "The security token included in the request is invalid.")
        }
        Distrust::Invalid(why) => ApiError::violation(Kind::InvalidSignature, why),
    }
}

/// The query as a document, whose numbers are numbers.
fn query(operation: &Operation, query: &str) -> Result<Map<String, Value>> {
    let mut document = Map::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let decode = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
        let (name, value) = (decode(name), decode(value));
        match operation.query.iter().find(|member| member.name == name).map(|member| member.shape) {
            Some(Shape::Whole { .. }) => {
                document.insert(name, value.parse::<i64>().map_or_else(|_| json!(value), |number| json!(number)));
            }
            Some(Shape::List { .. }) => {
                if let Value::Array(list) = document.entry(name).or_insert_with(|| json!([])) {
                    list.push(json!(value));
                }
            }
            _ => {
                document.insert(name, json!(value));
            }
        }
    }
    let document = Value::Object(document);
    fitting(operation.query, &document)?;
    Ok(document.as_object().cloned().unwrap_or_default())
}

fn document(members: &[Member], body: &[u8]) -> Result<Value> {
    let body = if body.is_empty() { b"{}" } else { body };
    let document: Value =
        serde_json::from_slice(body).map_err(|error| ApiError::violation(Kind::Serialization, error.to_string()))?;
    fitting(members, &document)?;
    Ok(document)
}

/// What the service model forbids is answered as the service does. Members that it does not have, and values of other
/// types, are violations; constraints are what the caller's data can break.
fn fitting(members: &[Member], document: &Value) -> Result<()> {
    let misfits = misfits(members, document);
    if let Some(Misfit::Foreign(what)) = misfits.iter().find(|misfit| matches!(misfit, Misfit::Foreign(_))) {
        return Err(ApiError::violation(Kind::Serialization, what.clone()));
    }
    let broken: Vec<String> = misfits
        .into_iter()
        .filter_map(|misfit| match misfit {
            Misfit::Constraint(text) => Some(text),
            Misfit::Foreign(_) => None,
        })
        .collect();
    if broken.is_empty() { Ok(()) } else { Err(ApiError::invalid(message(&broken))) }
}
