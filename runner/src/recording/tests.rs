//! Recordings as files: what is read, and that what was written is read back.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use proptest::prelude::*;
use sandbox_bench_core::Digest;

use super::step::Put;
use super::{Recording, Run, Step, TaskSteps};

fn steps() -> impl Strategy<Value = Step> {
    // Whatever a model may write: quotes, line ends, control characters, other scripts.
    let text = || any::<String>().prop_map(|text| text.replace('\0', ""));
    let run = (text(), prop::option::of(text()), prop::option::of(1u64..1000), prop::option::of(any::<i32>()))
        .prop_map(|(script, stdin, timeout_seconds, exit_code)| {
            let env = BTreeMap::from([("NAME".to_owned(), script.clone())]);
            let stdout = exit_code.map(|code| Digest::of(&code.to_be_bytes()));
            Step::Run(Run { stdin, timeout_seconds, exit_code, stdout, env, ..Run::script(&script) })
        });
    let put = (any::<Vec<u8>>(), any::<bool>()).prop_map(|(bytes, x)| Step::Put(Put::new("/work/file", &bytes, x)));
    prop_oneof![run, put]
}

proptest! {
    #[test]
    fn what_was_written_is_read_back(steps in prop::collection::vec(steps(), 0..8)) {
        let task = TaskSteps { dataset: None, task: "one".into(), from: None, separate_streams: true, steps };
        let recording = Recording { tasks: vec![task] };
        let json = serde_json::to_string_pretty(&recording).unwrap();
        prop_assert_eq!(Recording::parse(json.as_bytes()).unwrap(), recording);
    }

    #[test]
    fn nothing_that_is_read_panics(bytes in any::<Vec<u8>>(), text in "[-{}\\[\\]:, a-z\"\\n&*!|>0-9]{0,80}") {
        let _ = Recording::parse(&bytes);
        let _ = Recording::parse(text.as_bytes());
        let _ = Recording::parse(format!("tasks: {text}").as_bytes());
    }
}

#[test]
fn a_file_that_is_no_text_survives() {
    let put = Put::new("/work/file", &[0xff, 0x00, 0xfe], true);
    assert_eq!(put.base64.as_deref(), Some("/wD+"));
    let sandbox_bench_core::Payload::Bytes { bytes, mode } = put.input().unwrap().payload else { panic!("no bytes") };
    assert_eq!((bytes.as_ref(), mode), (&[0xff, 0x00, 0xfe][..], 0o755));
}
