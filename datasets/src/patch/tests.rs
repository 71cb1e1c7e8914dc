#![allow(clippy::unwrap_used)]
use std::fs;
use std::path::Path;
use std::process::Command;

use proptest::prelude::*;

use super::*;

const PATCH: &str = "diff --git a/src/a.py b/src/a.py\nindex 1..2 100644\n--- a/src/a.py\n+++ b/src/a.py\n\
                     @@ -2,3 +2,3 @@ def f():\n two\n-three\n+drei\n four\n";

fn lines(words: &[&str]) -> Vec<u8> {
    words.iter().map(|word| format!("{word}\n")).collect::<String>().into_bytes()
}

fn apply_to(patch: &str, direction: Direction, files: &[(&str, &[u8])]) -> Result<Vec<FileChange>, PatchError> {
    apply(patch, direction, |path| files.iter().find(|(name, _)| *name == path).map(|(_, content)| content.to_vec()))
}

fn content_of(changes: &[FileChange], path: &str) -> Option<Vec<u8>> {
    changes.iter().find(|change| change.path == path).unwrap().content.clone()
}

#[test]
fn forward_and_back_again() {
    let (old, new) = (lines(&["one", "two", "three", "four", "five"]), lines(&["one", "two", "drei", "four", "five"]));
    let forward = apply_to(PATCH, Direction::Forward, &[("src/a.py", &old)]).unwrap();
    assert_eq!(content_of(&forward, "src/a.py"), Some(new.clone()));
    let back = apply_to(PATCH, Direction::Reverse, &[("src/a.py", &new)]).unwrap();
    assert_eq!(content_of(&back, "src/a.py"), Some(old.clone()));
    let twice = apply_to(PATCH, Direction::Forward, &[("src/a.py", &new)]);
    assert_eq!(twice, Err(PatchError::AlreadyApplied));
    assert_eq!(apply_to(PATCH, Direction::Reverse, &[("src/a.py", &old)]), Err(PatchError::AlreadyApplied));
    assert_eq!(files_touched(PATCH).unwrap(), ["src/a.py"]);
}

#[test]
fn lines_may_have_moved_but_not_changed() {
    let moved = lines(&["zero", "zero", "one", "two", "three", "four", "five"]);
    assert!(apply_to(PATCH, Direction::Forward, &[("src/a.py", &moved)]).is_ok());
    let changed = lines(&["one", "TWO", "three", "four", "five"]);
    let error = apply_to(PATCH, Direction::Forward, &[("src/a.py", &changed)]).unwrap_err();
    assert_eq!(error.to_string(), "the patch does not apply to src/a.py: hunk 1 does not fit");
    let missing = apply_to(PATCH, Direction::Forward, &[]).unwrap_err();
    assert_eq!(missing.to_string(), "the patch does not apply to src/a.py: it does not exist");
}

#[test]
fn an_applied_patch_is_not_applied_to_a_similar_place() {
    let patch = "--- a/x\n+++ b/x\n@@ -2,3 +2,3 @@\n a\n-b\n+B\n c\n";
    let (before, after) = (b"0\na\nb\nc\n1\na\nb\nc\n2\n", b"0\na\nB\nc\n1\na\nb\nc\n2\n");
    let changes = apply_to(patch, Direction::Forward, &[("x", before)]).unwrap();
    assert_eq!(content_of(&changes, "x").unwrap(), after);
    assert_eq!(apply_to(patch, Direction::Forward, &[("x", after)]), Err(PatchError::AlreadyApplied));
}

#[test]
fn files_are_made_removed_renamed_and_copied() {
    let patch = "diff --git a/new.sh b/new.sh\nnew file mode 100755\nindex 0..1\n--- /dev/null\n+++ b/new.sh\n@@ -0,0 +1 @@\n+hi\n\
                 diff --git a/gone b/gone\ndeleted file mode 100644\nindex 1..0\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-bye\n\
                 diff --git a/dir/from b/dir/to\nsimilarity index 100%\nrename from dir/from\nrename to dir/to\n\
                 diff --git a/dir/model b/dir/copy\nsimilarity index 100%\ncopy from dir/model\ncopy to dir/copy\n\
                 diff --git a/empty b/empty\nnew file mode 100644\nindex 0..0\n";
    let before: [(&str, &[u8]); 3] = [("gone", b"bye\n"), ("dir/from", b"x"), ("dir/model", b"m")];
    let changes = apply_to(patch, Direction::Forward, &before).unwrap();
    let made = changes.iter().find(|change| change.path == "new.sh").unwrap();
    assert_eq!((made.content.as_deref(), made.executable), (Some(&b"hi\n"[..]), Some(true)));
    assert_eq!(content_of(&changes, "gone"), None);
    assert_eq!(content_of(&changes, "dir/from"), None);
    assert_eq!(content_of(&changes, "dir/to"), Some(b"x".to_vec()));
    assert_eq!(content_of(&changes, "dir/copy"), Some(b"m".to_vec()));
    assert_eq!(content_of(&changes, "empty"), Some(Vec::new()));

    let after: [(&str, &[u8]); 5] =
        [("new.sh", b"hi\n"), ("dir/to", b"x"), ("dir/model", b"m"), ("dir/copy", b"m"), ("empty", b"")];
    let back = apply_to(patch, Direction::Reverse, &after).unwrap();
    assert_eq!(content_of(&back, "new.sh"), None);
    assert_eq!(content_of(&back, "gone"), Some(b"bye\n".to_vec()));
    assert_eq!(content_of(&back, "dir/from"), Some(b"x".to_vec()));
    assert_eq!(content_of(&back, "dir/copy"), None);
    assert_eq!(apply_to(patch, Direction::Forward, &after), Err(PatchError::AlreadyApplied));
}

#[test]
fn line_ends_are_bytes() {
    let patch = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n a\r\n-b\r\n\\ No newline at end of file\n+c\r\n";
    assert!(apply_to(patch, Direction::Forward, &[("x", b"a\r\nb\r")]).is_ok());
    let no_newline = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n";
    assert_eq!(content_of(&apply_to(no_newline, Direction::Forward, &[("x", b"a")]).unwrap(), "x").unwrap(), b"a\n");
    assert_eq!(apply_to(no_newline, Direction::Forward, &[("x", b"a\n")]), Err(PatchError::AlreadyApplied));
    assert!(
        apply_to(PATCH.trim_end(), Direction::Forward, &[("src/a.py", &lines(&["one", "two", "three", "four"]))])
            .is_ok()
    );
}

#[test]
fn what_cannot_be_done_is_refused() {
    let error = |patch: &str| apply_to(patch, Direction::Forward, &[("x", b"a\n")]).unwrap_err();
    assert!(matches!(error(""), PatchError::Malformed(_)));
    assert!(matches!(error("some text"), PatchError::Malformed(_)));
    assert!(matches!(error("--- a/x\n+++ b/x\n@@ -1,9 +1 @@\n a\n"), PatchError::Malformed(_)));
    assert!(matches!(
        error("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\ngarbage\n@@ -5 +5 @@\n-c\n+d\n"),
        PatchError::Malformed(_)
    ));
    for path in ["../x", "/etc/passwd", "y/../../x", "./x", "x//y"] {
        assert!(
            matches!(error(&format!("--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-a\n+b\n")), PatchError::UnsafePath(_)),
            "{path}"
        );
    }
    let link = "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc\n\\ No newline at end of file\n";
    assert!(matches!(error(link), PatchError::Unsupported { .. }));
    let binary = "diff --git a/i.png b/i.png\nindex 1..2 100644\nBinary files a/i.png and b/i.png differ\n";
    assert!(matches!(error(binary), PatchError::Unsupported { .. }));
}

#[test]
fn a_patch_is_applied_whole_or_not_at_all() {
    let patch = format!("{PATCH}diff --git a/y b/y\n--- a/y\n+++ b/y\n@@ -1 +1 @@\n-1\n+2\n");
    let half: [(&str, &[u8]); 2] = [("src/a.py", b"one\ntwo\ndrei\nfour\n"), ("y", b"1\n")];
    assert!(matches!(apply_to(&patch, Direction::Forward, &half), Err(PatchError::DoesNotApply { .. })));
}

fn git(directory: &Path, arguments: &[&str]) -> std::process::Output {
    Command::new("git").args(arguments).current_dir(directory).env("GIT_CONFIG_NOSYSTEM", "1").output().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// git makes the patch, git and we apply it, in both directions, also with lines added above.
    #[test]
    fn git_and_we_agree(
        old in prop::collection::vec("[ab \r]{0,2}", 0..30),
        edits in prop::collection::vec((0usize..40, prop::option::of("[abc]{1,2}")), 1..6),
        newline in any::<bool>(),
        above in 0usize..3,
    ) {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path();
        let mut new = old.clone();
        for (at, text) in edits {
            match text {
                Some(text) if at <= new.len() => new.insert(at, text),
                None if at < new.len() => drop(new.remove(at)),
                _ => {}
            }
        }
        let join = |lines: &[String], newline: bool| {
            let text = lines.join("\n");
            if newline { format!("{text}\n") } else { text }
        };
        let (old_text, new_text) = (join(&old, newline), join(&new, true));
        prop_assume!(old_text != new_text);
        fs::create_dir_all(place.join("a")).unwrap();
        fs::create_dir_all(place.join("b")).unwrap();
        fs::write(place.join("a/f"), &old_text).unwrap();
        fs::write(place.join("b/f"), &new_text).unwrap();
        let made = git(place, &["diff", "--no-index", "--no-prefix", "a/f", "b/f"]);
        let patch = String::from_utf8(made.stdout).unwrap();
        for (direction, flag, start) in [(Direction::Forward, None, &old_text), (Direction::Reverse, Some("-R"), &new_text)] {
            let start = format!("{}{start}", "top\n".repeat(above));
            fs::write(place.join("f"), &start).unwrap();
            fs::write(place.join("p"), &patch).unwrap();
            let arguments: Vec<&str> = ["apply"].into_iter().chain(flag).chain(["p"]).collect();
            let by_git = git(place, &arguments);
            let by_us = apply_to(&patch, direction, &[("f", start.as_bytes())]);
            if by_git.status.success() {
                let expected = fs::read(place.join("f")).unwrap();
                if by_us != Err(PatchError::AlreadyApplied) {
                    prop_assert_eq!(content_of(&by_us.unwrap(), "f"), Some(expected), "{}", patch);
                }
            } else {
                prop_assert!(by_us.is_err(), "{}\n{}", patch, String::from_utf8_lossy(&by_git.stderr));
            }
        }
    }

    #[test]
    fn any_text_is_refused_or_applied(patch in any::<String>(), file in any::<Vec<u8>>()) {
        let result = apply_to(&patch, Direction::Forward, &[("x", &file)]);
        prop_assert!(result.is_err() || !patch.is_empty());
    }

    #[test]
    fn damaged_patches_are_refused_or_applied(at in 0usize..200, byte in 0u8..128, cut in 0usize..200) {
        let mut bytes = PATCH.as_bytes().to_vec();
        if let Some(place) = bytes.get_mut(at) { *place = byte; }
        bytes.truncate(cut);
        let patch = String::from_utf8(bytes).unwrap();
        let file = lines(&["one", "two", "three", "four", "five"]);
        if let Ok(changes) = apply_to(&patch, Direction::Forward, &[("src/a.py", &file)]) {
            prop_assert!(changes.iter().all(|change| !change.path.starts_with('/')));
        }
    }
}
