//! Dockerfiles of images: the task's own, and after it what makes a MicroVM of ours of it.

use crate::program::Program;

/// Where the image has the runner.
const HOME: &str = "/opt/sandbox-bench";
/// Where the build context has what is ours. The runner removes it from where a task's `COPY .` has brought it.
pub(crate) const OURS: &str = ".sandbox-bench-context";
/// The stage that compiles the runner.
const STAGE: &str = "sandbox-bench-runner";

/// The Dockerfile `text` with the runner in its last stage. `port`: where the runner listens.
pub(crate) fn with_runner(text: &str, program: &Program, port: u16) -> String {
    let (text, copy) = match program {
        Program::Binary { .. } => (text.to_owned(), format!("COPY {OURS}/runner {HOME}/runner")),
        Program::Sources => {
            let stage = format!(
                "FROM rust:1.95-slim AS {STAGE}\nCOPY {OURS}/source /source\nWORKDIR /source\n\
                 RUN cargo build --release && cp target/release/sandbox-bench-microvm-runner /runner\n"
            );
            (before_last_stage(text, &stage), format!("COPY --from={STAGE} /runner {HOME}/runner"))
        }
    };
    let listen = match port {
        8080 => String::new(),
        port => format!("ENV SANDBOX_RUNNER_API_ADDRESS=0.0.0.0:{port}\n"),
    };
    format!(
        "{}\n{copy}\n{}\nUSER 0\n{}\n{listen}EXPOSE {port} 9000\nENTRYPOINT []\n\
         CMD [\"{HOME}/runner\"]\n",
        text.trim_end(),
        step("note-user"),
        step("index"),
    )
}

/// A step of the runner.
fn step(words: &str) -> String {
    let words: Vec<String> = words.split(' ').map(|word| format!("\"{word}\"")).collect();
    format!("RUN [\"{HOME}/runner\", {}]", words.join(", "))
}

/// A Dockerfile of ours with one more layer, which the context has under `name`; none if it is not ours.
pub(crate) fn with_layer(text: &str, name: &str) -> Option<String> {
    // All is copied before anything is applied: what a layer removes may be where the build has its context.
    let (task, ours) = text.split_at(text.rfind(&step("note-user"))?);
    let (ours, rest) = ours.split_at(ours.find(&step("index"))?);
    let apply = step(&format!("apply {HOME}/{name}"));
    Some(format!("{task}COPY {OURS}/{name} {HOME}/{name}\n{ours}{apply}\n{rest}"))
}

/// `text` with `stage` before its last `FROM`, after every `ARG` that comes before the first.
fn before_last_stage(text: &str, stage: &str) -> String {
    let mut last = None;
    let (mut at, mut continued) = (0, false);
    for line in text.split_inclusive('\n') {
        let word = line.split_whitespace().next().unwrap_or_default();
        if !continued && word.eq_ignore_ascii_case("FROM") {
            last = Some(at);
        }
        // A comment within a continued instruction does not end it.
        continued = line.trim_end().ends_with('\\') || (continued && word.starts_with('#'));
        at += line.len();
    }
    let (before, after) = text.split_at(last.unwrap_or(0));
    format!("{before}{stage}{after}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_runner_is_added_to_the_last_stage_and_compiled_before_it_if_need_be() {
        let text = "ARG V=3\nFROM a:$V AS first\nRUN echo \\\n  FROM here\nfrom b\nUSER agent";
        let binary = Program::Binary { bytes: Vec::new(), digest: String::new() };
        let with = with_runner(text, &binary, 8080);
        assert!(with.starts_with(&format!("{text}\nCOPY {OURS}/runner /opt")), "{with}");
        assert!(
            with.contains("\"note-user\"]\nUSER 0\nRUN [\"/opt/sandbox-bench/runner\", \"index\"]\nEXPOSE 8080 9000\n")
        );
        let with = with_runner(text, &Program::Sources, 9090);
        assert!(with.starts_with("ARG V=3\nFROM a:$V AS first\nRUN echo \\\n  FROM here\nFROM rust:"), "{with}");
        assert!(with.contains("/runner\nfrom b\nUSER agent\nCOPY --from=sandbox-bench-runner"), "{with}");
        assert!(with.contains("ADDRESS=0.0.0.0:9090\nEXPOSE 9090 9000"), "{with}");
    }

    #[test]
    fn layers_are_copied_then_applied_in_their_order_before_the_index() {
        let binary = Program::Binary { bytes: Vec::new(), digest: String::new() };
        let first = with_layer(&with_runner("FROM a", &binary, 8080), "layer-1").unwrap();
        let second = with_layer(&first, "layer-2").unwrap();
        let parts = ["/layer-1 ", "/layer-2 ", "USER 0", "/layer-1\"]", "/layer-2\"]", "\"index\"", "CMD"];
        let places = parts.map(|part| second.find(part).unwrap());
        assert!(places.is_sorted(), "{second}");
        assert_eq!(with_layer("FROM a", "layer-1"), None);
    }
}
