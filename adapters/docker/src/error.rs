//! From what the engine or the connection said to what the caller can do about it.

use std::error::Error as StdError;
use std::io;

use bollard::errors::Error as EngineError;
use sandbox_bench_core::{Error, ErrorKind};

/// What to do where no engine answers.
const NOT_RUNNING: &str = "is the engine running there? start it, or correct DOCKER_HOST or `host` in bench.toml";

/// The error for `what` ("container 3f2a…: start"), which failed with `error`.
pub(crate) fn map(what: &str, error: EngineError) -> Error {
    let (kind, hint) = classify(&error);
    let out = match &error {
        // The client's own words name the client.
        EngineError::HyperLegacyError { .. } => Error::new(kind, format!("{what} failed: {}", innermost(&error))),
        EngineError::SocketNotFoundError(path) => Error::new(kind, format!("{what} failed: there is no socket {path}")),
        _ => Error::new(kind, format!("{what} failed")).because(error),
    };
    match hint {
        Some(hint) => out.hint(hint),
        None => out,
    }
}

/// The engine's status and message, if it answered at all.
pub(crate) fn answer(error: &EngineError) -> Option<(u16, &str)> {
    match error {
        EngineError::DockerResponseServerError { status_code, message } => Some((*status_code, message)),
        _ => None,
    }
}

/// True if the engine says that the container is not there, or not running.
pub(crate) fn container_gone(error: &EngineError) -> bool {
    answer(error).is_some_and(|(status, message)| match status {
        404 => message.contains("No such container") || message.contains("no such container"),
        409 => message.contains("not running") || message.contains("is paused"),
        _ => false,
    })
}

/// True if the engine says that it does not have the image.
pub(crate) fn image_missing(error: &EngineError) -> bool {
    answer(error).is_some_and(|(status, message)| {
        let message = message.to_ascii_lowercase();
        status == 404 && (message.contains("no such image") || message.contains("image not known"))
    })
}

fn classify(error: &EngineError) -> (ErrorKind, Option<&'static str>) {
    match error {
        EngineError::DockerResponseServerError { status_code, message } => by_status(*status_code, message),
        EngineError::DockerStreamError { error } => (by_text(error).unwrap_or(ErrorKind::Failed), None),
        EngineError::InvalidURIError { .. }
        | EngineError::InvalidURIPartsError { .. }
        | EngineError::URLParseError { .. }
        | EngineError::URLEncodedError { .. }
        | EngineError::HttpClientError { .. }
        | EngineError::UnsupportedURISchemeError { .. } => (ErrorKind::InvalidRequest, None),
        EngineError::SocketNotFoundError(_) => (ErrorKind::Unavailable, Some(NOT_RUNNING)),
        EngineError::HyperLegacyError { .. } if permission_denied(error) => {
            (ErrorKind::Credentials, Some("may you open the socket? add your user to its group or set DOCKER_HOST"))
        }
        EngineError::HyperLegacyError { err } if err.is_connect() => (ErrorKind::Unavailable, Some(NOT_RUNNING)),
        EngineError::HyperLegacyError { .. }
        | EngineError::HyperResponseError { .. }
        | EngineError::IOError { .. }
        | EngineError::RequestTimeoutError => (ErrorKind::Transport, None),
        _ => (ErrorKind::Failed, None),
    }
}

fn by_status(status: u16, message: &str) -> (ErrorKind, Option<&'static str>) {
    let kind = match status {
        401 | 403 => ErrorKind::Credentials,
        404 => ErrorKind::NotFound,
        429 => ErrorKind::RateLimited { retry_after: None },
        400 | 409 => ErrorKind::InvalidRequest,
        503 => ErrorKind::Unavailable,
        _ => by_text(message).unwrap_or(ErrorKind::Failed),
    };
    (kind, None)
}

/// Faults that the engine tells apart by its words only.
fn by_text(message: &str) -> Option<ErrorKind> {
    let message = message.to_ascii_lowercase();
    let any = |needles: &[&str]| needles.iter().any(|needle| message.contains(needle));
    if any(&["no space left", "cannot allocate memory", "resource temporarily unavailable", "too many open files"]) {
        Some(ErrorKind::Capacity)
    } else if any(&["toomanyrequests", "too many requests"]) {
        Some(ErrorKind::RateLimited { retry_after: None })
    } else if any(&["cannot overwrite", "not a directory"]) {
        Some(ErrorKind::InvalidRequest)
    } else {
        None
    }
}

/// The last of an error's causes: what the system said.
fn innermost(error: &EngineError) -> String {
    let mut last: &(dyn StdError + 'static) = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string()
}

fn permission_denied(error: &EngineError) -> bool {
    let mut source: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(cause) = source {
        if cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::PermissionDenied) {
            return true;
        }
        source = cause.source();
    }
    false
}

/// Why a command could not be started, from the engine's own words (Docker Engine 20.10 writes them into the output
/// stream, others answer the request with them). None if the words are not known.
pub(crate) fn exec_refused(container: &str, text: &str) -> Option<Error> {
    let text = text.trim();
    let any = |needles: &[&str]| needles.iter().any(|needle| text.contains(needle));
    let error = |kind, what: &str| Some(Error::new(kind, format!("container {container}: {what}: {text}")));
    if any(&["unable to find user", "unable to find group", "no matching entries in", "no users found"]) {
        error(ErrorKind::NotFound, "no such user")
    } else if any(&["chdir to cwd", "is not an absolute path", "workdir"]) {
        error(ErrorKind::NotFound, "no such working directory")
    } else if any(&["not running", "stopped state", "No such container", "no such container", "does not exist"]) {
        error(ErrorKind::SandboxLost, "it does not run any more")
    } else if any(&["/bin/sh"]) && any(&["no such file", "executable file not found", "not found"]) {
        error(ErrorKind::Environment, "its image has no /bin/sh, which running a command needs")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn answered(status_code: u16, message: &str) -> EngineError {
        EngineError::DockerResponseServerError { status_code, message: message.to_owned() }
    }

    #[test]
    fn answers_are_sorted_by_what_the_caller_can_do() {
        let kind = |status, message: &str| map("x", answered(status, message)).kind().clone();
        assert_eq!(kind(400, "invalid reference format"), ErrorKind::InvalidRequest);
        assert_eq!(kind(404, "network nosuch not found"), ErrorKind::NotFound);
        assert_eq!(kind(500, "write /x: no space left on device"), ErrorKind::Capacity);
        assert_eq!(
            kind(500, "toomanyrequests: You have reached your pull rate limit"),
            ErrorKind::RateLimited { retry_after: None }
        );
        assert_eq!(kind(500, "cannot overwrite directory \"/x\" with non-directory"), ErrorKind::InvalidRequest);
        assert_eq!(kind(500, "anything else"), ErrorKind::Failed);
        assert_eq!(kind(503, "swarm"), ErrorKind::Unavailable);
    }

    #[test]
    fn a_missing_image_is_not_a_missing_container() {
        assert!(image_missing(&answered(404, "No such image: nosuch:img")));
        assert!(!image_missing(&answered(404, "No such container: 12")));
        assert!(container_gone(&answered(404, "No such container: 12")));
        assert!(container_gone(&answered(409, "Container 12 is not running")));
        assert!(!container_gone(&answered(409, "Conflict. The container name is already in use")));
    }

    // Texts of Docker Engine 20.10.24, measured.
    #[test]
    fn a_refused_command_is_explained() {
        let kind = |text: &str| exec_refused("12", text).map(|e| e.kind().clone());
        let oci = "OCI runtime exec failed: exec failed: unable to start container process: ";
        let user = "unable to find user nosuch: no matching entries in passwd file\r\n";
        assert_eq!(kind(user), Some(ErrorKind::NotFound));
        let cwd =
            format!("{oci}chdir to cwd (\"/nope\") set in config.json failed: no such file or directory: unknown");
        assert_eq!(kind(&cwd), Some(ErrorKind::NotFound));
        let sh = format!("{oci}exec: \"/bin/sh\": stat /bin/sh: no such file or directory: unknown\r\n");
        assert_eq!(kind(&sh), Some(ErrorKind::Environment));
        assert_eq!(kind("Container 12 is not running"), Some(ErrorKind::SandboxLost));
        assert_eq!(kind(&format!("{oci}something new")), None);
    }
}
