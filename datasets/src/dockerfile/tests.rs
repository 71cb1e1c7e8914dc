#![allow(clippy::unwrap_used)]
use proptest::prelude::*;

use super::*;
use crate::task::RecipeStep;

fn run(argv: &[&str], line: u32) -> RecipeStep {
    RecipeStep::Run { argv: argv.iter().map(|&word| word.to_owned()).collect(), line }
}

fn env(name: &str, value: &str) -> RecipeStep {
    RecipeStep::Env { name: name.to_owned(), value: value.to_owned() }
}

#[test]
fn a_typical_file_becomes_steps() {
    let recipe = parse(
        "FROM python:3.12-slim\nENV A=1 B=\"two words\"\nENV OLD style value\nWORKDIR /app\nWORKDIR src/../lib\n\
         COPY data/ ./data/\nCOPY [\"a b\", \"/c\"]\nRUN pip install x \\\n  && echo \"$A\"\nRUN [\"make\", \"all\"]\n\
         SHELL [\"/bin/bash\", \"-c\"]\nRUN echo ok\nUSER agent:agent\nEXPOSE 80\nCMD [\"sh\"]\n",
    );
    let copy = |source: &str, destination: &str, line| RecipeStep::Copy {
        sources: vec![source.to_owned()],
        destination: destination.to_owned(),
        line,
    };
    assert_eq!(recipe.unsupported, None);
    assert_eq!(recipe.from, "python:3.12-slim");
    assert_eq!(recipe.workdir.as_deref(), Some("/app/lib"));
    assert_eq!(
        recipe.steps,
        [
            env("A", "1"),
            env("B", "two words"),
            env("OLD", "style value"),
            RecipeStep::Workdir("/app".into()),
            RecipeStep::Workdir("/app/lib".into()),
            copy("data", "./data/", 6),
            copy("a b", "/c", 7),
            run(&["/bin/sh", "-c", "pip install x   && echo \"$A\""], 8),
            run(&["make", "all"], 10),
            run(&["/bin/bash", "-c", "echo ok"], 12),
            RecipeStep::User("agent:agent".into()),
        ]
    );
}

#[test]
fn args_reach_from_run_and_substitution() {
    let recipe = parse(
        "ARG TAG=24.04\nFROM ubuntu:${TAG}\nARG TAG\nARG DEBIAN_FRONTEND=noninteractive\nRUN a\n\
         ENV TAG=env\nARG TAG=ignored\nENV T=$TAG PATH=/opt/bin:$PATH\nRUN b",
    );
    assert_eq!(recipe.from, "ubuntu:24.04");
    assert_eq!(recipe.steps[0], run(&["env", "DEBIAN_FRONTEND=noninteractive", "TAG=24.04", "/bin/sh", "-c", "a"], 5));
    assert_eq!(recipe.steps[2], env("T", "env"));
    assert_eq!(recipe.steps[3], env("PATH", "/opt/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"));
    assert_eq!(recipe.steps[4], run(&["env", "DEBIAN_FRONTEND=noninteractive", "/bin/sh", "-c", "b"], 9));
}

#[test]
fn only_the_final_stage_counts() {
    let recipe = parse(
        "FROM gcc AS build\nRUN --mount=type=cache,target=/x make\nFROM debian AS base\nWORKDIR /srv\nFROM BASE\nRUN x",
    );
    assert_eq!((recipe.from.as_str(), &recipe.unsupported), ("debian", &None));
    assert_eq!(recipe.steps, [RecipeStep::Workdir("/srv".into()), run(&["/bin/sh", "-c", "x"], 6)]);
    let copies = parse("FROM gcc AS build\nFROM debian\nCOPY --from=build /a /b\nWORKDIR /w");
    assert_eq!(copies.unsupported.unwrap().to_string(), "line 3: COPY --from is not supported");
    assert_eq!(copies.workdir.as_deref(), Some("/w"), "the working directory is found nevertheless");
}

#[test]
fn here_documents_and_cache_mounts_of_run_are_replayed() {
    let recipe = parse(
        "FROM a\nRUN <<EOF\necho one\nEOF\nRUN cat <<-'X' >/f && true\n\ttwo\n\tX\n\
         RUN --mount=type=cache,target=/c --mount=target=/d,type=cache pip install x",
    );
    assert_eq!(recipe.unsupported, None);
    let script = |step: &RecipeStep| match step {
        RecipeStep::Run { argv, .. } => argv[2].clone(),
        other => panic!("{other:?}"),
    };
    let scripts: Vec<String> = recipe.steps.iter().map(script).collect();
    assert_eq!(scripts, ["echo one\n", "cat <<-'X' >/f && true\n\ttwo\nX\n", "pip install x"]);
}

#[test]
fn what_cannot_be_replayed_is_named_with_its_line() {
    for (text, why) in [
        ("FROM a\nRUN --mount=type=secret,id=x cat", "line 2: RUN --mount=type=secret,id=x is not supported"),
        ("FROM a\nCOPY <<EOF /x\nx\nEOF\n", "line 2: COPY of a here-document is not supported"),
        (
            "FROM a\nRUN <<EOF\n#!/usr/bin/python3\nEOF\n",
            "line 2: a here-document with its own interpreter is not supported",
        ),
        ("FROM a\n\nADD https://example.com/x /x", "line 3: ADD of a URL or an archive is not supported"),
        ("FROM a\nADD src.tar.gz /x", "line 2: ADD of a URL or an archive is not supported"),
        ("FROM a\nCOPY --chown=me x /x", "line 2: COPY --chown is not supported"),
        ("FROM a\nCOPY --chmod=755 x /x", "line 2: COPY --chmod is not supported"),
        ("FROM a\nCOPY ../x /x", "line 2: the source ../x is outside of the build context"),
        ("FROM a\nCOPY x", "line 2: COPY needs a source and a destination"),
        ("FROM a\nARG TARGETARCH", "line 2: ARG TARGETARCH is set by the builder, which is not supported"),
        ("FROM a\nFETCH x", "line 2: the instruction FETCH is not known"),
        ("FROM\nRUN x", "line 1: FROM needs an image"),
        ("RUN x\nFROM a", "line 1: there is an instruction before FROM"),
        ("# only a comment", "line 1: there is no FROM"),
    ] {
        assert_eq!(
            parse(text).unsupported.map(|unreplayable| unreplayable.to_string()).as_deref(),
            Some(why),
            "{text}"
        );
    }
}

proptest! {
    #[test]
    fn any_text_is_read(text in any::<String>()) {
        let recipe = parse(&text);
        prop_assert!(recipe.workdir.is_none_or(|workdir| workdir.starts_with('/')));
    }

    #[test]
    fn any_mix_of_fragments_is_read(
        parts in prop::collection::vec(
            prop::sample::select(vec![
                "FROM ", "a", " AS b", "\n", "\\\n", "RUN ", "COPY ", "ENV ", "ARG ", "WORKDIR ", "SHELL ", "[\"", "\"]",
                "${", "}", "$", "\"", "'", "<<EOF", "EOF", "--from=", "=", " ", "#", "# escape=`\n", "`\n", "..", "/", "é",
            ]),
            0..40,
        ),
    ) {
        let recipe = parse(&parts.concat());
        if let Some(workdir) = recipe.workdir {
            prop_assert!(workdir.starts_with('/'));
        }
    }
}
