//! What the server accepts: the documented fields, of the documented types, in the documented order.

use axum::http::HeaderMap;
use serde_json::Value;

use super::KEY;

/// The models that there are.
const MODELS: [&str; 2] = ["scripted", "scripted-2"];

/// Fields of a request that the documentation knows, as far as any client of these tests sends them.
const FIELDS: [&str; 9] = [
    "model",
    "messages",
    "tools",
    "tool_choice",
    "stream",
    "stream_options",
    "temperature",
    "max_tokens",
    "max_completion_tokens",
];

/// Why a request is wrong.
pub struct Refusal {
    pub status: u16,
    pub code: String,
    pub message: String,
}

fn wrong(message: impl Into<String>) -> Refusal {
    Refusal { status: 400, code: "invalid_request_error".into(), message: message.into() }
}

/// The body of a correct request.
pub fn check(headers: &HeaderMap, body: &[u8]) -> Result<Value, Refusal> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if header("authorization") != format!("Bearer {KEY}") {
        let message = format!("Incorrect API key provided: {}", header("authorization"));
        return Err(Refusal { status: 401, code: "invalid_api_key".into(), message });
    }
    if header("content-type") != "application/json" {
        return Err(wrong(format!("content type {:?}", header("content-type"))));
    }
    let body: Value = serde_json::from_slice(body).map_err(|error| wrong(format!("not JSON: {error}")))?;
    let fields = body.as_object().ok_or_else(|| wrong("the body is no object"))?;
    if let Some(field) = fields.keys().find(|field| !FIELDS.contains(&field.as_str())) {
        return Err(wrong(format!("Unrecognized request argument supplied: {field}")));
    }
    let model = body["model"].as_str().ok_or_else(|| wrong("you must provide a model parameter"))?;
    if !MODELS.contains(&model) {
        let message = format!("The model `{model}` does not exist");
        return Err(Refusal { status: 404, code: "model_not_found".into(), message });
    }
    if body["stream"] != true && !body["stream_options"].is_null() {
        return Err(wrong("stream_options is only allowed with stream"));
    }
    messages(body["messages"].as_array().ok_or_else(|| wrong("messages is no array"))?)?;
    for tool in body["tools"].as_array().into_iter().flatten() {
        self::tool(tool)?;
    }
    Ok(body)
}

/// Every tool call is answered, once, directly after the message that holds it, and nothing else is.
fn messages(messages: &[Value]) -> Result<(), Refusal> {
    let mut open: Vec<&str> = Vec::new();
    if messages.is_empty() {
        return Err(wrong("messages is empty"));
    }
    for (number, message) in messages.iter().enumerate() {
        let at = |what: &str| wrong(format!("messages[{number}]: {what}"));
        let role = message["role"].as_str().unwrap_or_default();
        let known: &[&str] = match role {
            "system" | "user" => &["role", "content"],
            "assistant" => &["role", "content", "tool_calls"],
            "tool" => &["role", "content", "tool_call_id"],
            other => return Err(at(&format!("unknown role {other:?}"))),
        };
        let fields = message.as_object().ok_or_else(|| at("no object"))?;
        if let Some(field) = fields.keys().find(|field| !known.contains(&field.as_str())) {
            return Err(at(&format!("unknown field {field}")));
        }
        if role != "tool" && !open.is_empty() {
            return Err(at(&format!("tool_call_ids did not have response messages: {}", open.join(", "))));
        }
        let calls = message["tool_calls"].as_array();
        let silent = message["content"].is_null() && calls.is_some();
        if !silent && message["content"].as_str().is_none_or(|content| role != "tool" && content.is_empty()) {
            return Err(at("content must be a text that is not empty"));
        }
        if role == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            let place = open.iter().position(|call| *call == id).ok_or_else(|| at("answers no call before it"))?;
            open.remove(place);
        }
        for call in calls.into_iter().flatten() {
            let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
            let name = call["function"]["name"].as_str().unwrap_or_default();
            if call["type"] != "function" || !is_name(name) {
                return Err(at("a tool call that is none"));
            }
            if !serde_json::from_str::<Value>(arguments).is_ok_and(|arguments| arguments.is_object()) {
                return Err(at("the arguments of a tool call are not a JSON object"));
            }
            open.push(call["id"].as_str().filter(|id| !id.is_empty()).ok_or_else(|| at("a tool call without id"))?);
        }
    }
    if open.is_empty() { Ok(()) } else { Err(wrong("the last tool calls have no response messages")) }
}

fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    !name.is_empty() && name.len() <= 64 && name.chars().all(plain)
}

fn tool(tool: &Value) -> Result<(), Refusal> {
    let function = &tool["function"];
    let name = function["name"].as_str().unwrap_or_default();
    if tool["type"] != "function" || !is_name(name) {
        return Err(wrong(format!("tool {name:?}: no function with a proper name")));
    }
    let parameters = &function["parameters"];
    let schema = jsonschema::meta::validate(parameters).map_err(|error| wrong(format!("tool {name}: {error}")));
    schema?;
    let known = parameters["properties"].as_object().ok_or_else(|| wrong(format!("tool {name}: no properties")))?;
    let required = parameters["required"].as_array().cloned().unwrap_or_default();
    if parameters["type"] != "object" || !required.iter().all(|r| r.as_str().is_some_and(|r| known.contains_key(r))) {
        return Err(wrong(format!("tool {name}: required names a parameter that there is not")));
    }
    Ok(())
}
