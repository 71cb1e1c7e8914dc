//! Placing files: exactly what was given, where it was to go, and nowhere else.

use sandbox_bench_core::{Digest, Input, InputEntry, Payload, Stage};

use crate::check::{Check, Stop, refused, same};
use crate::ensure;
use crate::harness::{Handle, Harness};
use crate::tree::Tree;

/// `mode owner:group` of a path, symbolic links not followed.
async fn stat(h: &Harness, s: &Handle, path: &str) -> Check<String> {
    h.sh(s, &format!("stat -c '%a %u:%g' '{path}'")).await
}

/// Bytes that do not compress, the same each time (xorshift64).
#[must_use]
pub fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// A tree with everything that trees may hold.
#[must_use]
pub fn varied() -> Tree {
    let deep = format!("{0}/{0}/{0}/leaf", "d".repeat(90));
    Tree::default()
        .file("plain.txt", 0o644, "plain")
        .file("run.sh", 0o755, "#!/bin/sh\necho ran\n")
        .file("secret", 0o600, "secret")
        .file("read only", 0o444, "read only")
        .file("empty", 0o644, "")
        .file("grüße 漢字 🦀", 0o644, "unicode")
        .file("all bytes", 0o644, (0..=255).collect::<Vec<u8>>())
        .file(&format!("{}-long-name", "n".repeat(150)), 0o644, "long")
        .file("sub/inner", 0o640, "inner")
        .file(&deep, 0o644, "deep")
        .dir("sub", 0o755)
        .dir("empty dir", 0o755)
        .dir("private dir", 0o700)
        .link("relative", "sub/inner")
        .link("absolute", "/etc/passwd")
        .link("dangling", "no/such/file")
}

pub async fn single_files_keep_content_and_mode(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    let on_host = h.host_path();
    std::fs::write(&on_host, noise(100_000))?;
    let (digest, size) = Digest::of_reader(std::fs::File::open(&on_host)?)?;
    let entry = InputEntry {
        name: "f".into(),
        digest,
        size,
        destination: "/conformance/from host".into(),
        stage: Stage::Setup,
    };
    let inputs = [
        Input::bytes("a", "/conformance/all bytes", Stage::Setup, 0o755, (0..=255).collect::<Vec<u8>>()),
        Input::bytes("b", "/conformance/empty", Stage::Setup, 0o600, ""),
        Input::bytes("c", "/conformance/grüße 漢字", Stage::Setup, 0o444, "unicode"),
        Input { entry, payload: Payload::File { path: on_host, mode: 0o640 } },
    ];
    h.upload(&s, &inputs).await?;
    let expected = Tree::default()
        .file("all bytes", 0o755, (0..=255).collect::<Vec<u8>>())
        .file("empty", 0o600, "")
        .file("grüße 漢字", 0o444, "unicode")
        .file("from host", 0o640, noise(100_000))
        .below("conformance");
    same_tree(&h.get(&s, "/conformance").await?, &expected)?;
    for (path, mode) in [("all bytes", "755"), ("empty", "600"), ("grüße 漢字", "444"), ("from host", "640")] {
        same(path, stat(h, &s, &format!("/conformance/{path}")).await?, format!("{mode} 0:0"))?;
    }
    Ok(())
}

pub async fn trees_keep_modes_links_and_empty_directories(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    h.put_tree(&s, "/conformance/tree", &varied()).await?;
    let listed =
        h.sh(&s, "cd /conformance/tree && find . -mindepth 1 | wc -l && ./run.sh && readlink dangling").await?;
    // The deep path brings three directories of its own.
    same("what the sandbox sees", listed, format!("{}\nran\nno/such/file", varied().0.len() + 3))?;
    for (path, expected) in
        [("secret", "600 0:0"), ("run.sh", "755 0:0"), ("private dir", "700 0:0"), ("sub", "755 0:0")]
    {
        same(path, stat(h, &s, &format!("/conformance/tree/{path}")).await?, expected.to_owned())?;
    }
    same("owner of a link", h.sh(&s, "stat -c '%u:%g' /conformance/tree/dangling").await?, "0:0".into())
}

pub async fn a_large_file_arrives_whole(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    let large = noise(20 << 20);
    let digest = Digest::of(&large).hex();
    h.put(&s, "/conformance/large", large).await?;
    let sum = h.sh(&s, "sha256sum < /conformance/large").await?;
    same("digest of 20 MiB in the sandbox", sum.split(' ').next().unwrap_or_default().to_owned(), digest)
}

pub async fn many_small_files_arrive(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    let tree =
        (0..2000).fold(Tree::default(), |tree, n| tree.file(&format!("{}/{n}", n % 20), 0o644, format!("{n}\n")));
    h.put_tree(&s, "/conformance/many", &tree).await?;
    let script =
        "cd /conformance/many && find . -type f | wc -l && find . -type f -exec cat {} + | sort -n | uniq | wc -l";
    same("number of files and of different contents", h.sh(&s, script).await?, "2000\n2000".into())
}

pub async fn a_file_replaces_what_was_there(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    let file = |mode, content: &'static str| [Input::bytes("f", "/conformance/f", Stage::Setup, mode, content)];
    h.upload(&s, &file(0o644, "the first and longer content")).await?;
    h.upload(&s, &file(0o600, "short")).await?;
    same("content", h.sh(&s, "cat /conformance/f").await?, "short".into())?;
    same("mode", stat(h, &s, "/conformance/f").await?, "600 0:0".into())?;
    // A link is replaced itself: otherwise a command in the sandbox could redirect what root writes.
    h.sh(&s, "echo precious > /conformance/target && ln -sf target /conformance/f").await?;
    h.upload(&s, &file(0o644, "again")).await?;
    let seen = h.sh(&s, "cat /conformance/target /conformance/f; test -L /conformance/f && echo a link; true").await?;
    same("the link's former target and the file", seen, "precious\nagain".into())
}

pub async fn a_tree_is_merged_into_what_was_there(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    let before =
        Tree::default().file("kept", 0o644, "kept").file("sub/kept", 0o644, "kept").file("sub/new", 0o644, "old");
    h.put_tree(&s, "/conformance/merged", &before).await?;
    let over = Tree::default().file("sub/new", 0o755, "new").file("added", 0o644, "added");
    h.put_tree(&s, "/conformance/merged", &over).await?;
    let merged = before.file("sub/new", 0o755, "new").file("added", 0o644, "added").dir("sub", 0o755);
    same_tree(&h.get(&s, "/conformance/merged").await?, &merged.below("merged"))
}

pub async fn missing_parents_are_made(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    h.put(&s, "/conformance/a/b/c/file", "x").await?;
    h.put_tree(&s, "/conformance/d/e/tree", &Tree::default().file("x", 0o644, "x")).await?;
    for made in ["/conformance", "/conformance/a/b/c", "/conformance/d/e"] {
        same(made, stat(h, &s, made).await?, "755 0:0".into())?;
    }
    Ok(())
}

pub async fn destinations_that_are_no_absolute_paths_are_refused(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    for bad in ["conformance/relative", "/conformance/../escaped", "", "/conformance/nul\0"] {
        refused(&format!("an upload to {bad:?}"), h.put(&s, bad, "x").await, &["invalid_request"])?;
    }
    h.sh(&s, "test ! -e /escaped && test ! -e /conformance/relative").await.map(drop)
}

pub async fn a_tree_cannot_leave_its_destination(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    for bad in ["../escaped", "/escaped", "sub/../../escaped"] {
        let tar = h.host_path();
        let mut archive = tar::Builder::new(std::fs::File::create(&tar)?);
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(1);
        // Written by hand: the builder refuses such names.
        header.as_old_mut().name[..bad.len()].copy_from_slice(bad.as_bytes());
        header.set_cksum();
        archive.append(&header, &b"x"[..])?;
        archive.finish()?;
        let result = h.upload(&s, &[Input::tree("tree", "/conformance/tree", Stage::Setup, tar)?]).await;
        refused(&format!("a tree with the member {bad:?}"), result, &["invalid_request"])?;
    }
    h.sh(&s, "test ! -e /escaped && test ! -e /conformance/escaped").await.map(drop)
}

pub async fn what_is_no_tar_file_is_refused(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    let broken = h.host_path();
    std::fs::write(&broken, noise(5000))?;
    let result = h.upload(&s, &[Input::tree("tree", "/conformance/broken", Stage::Setup, broken)?]).await;
    refused("a tree that is no tar file", result, &["invalid_request"])?;
    same("a command afterwards", h.sh(&s, "echo fine").await?, "fine".into())
}

pub async fn an_upload_of_nothing_is_no_error(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    h.upload(&s, &[]).await?;
    h.put_tree(&s, "/conformance/nothing", &Tree::default()).await?;
    same("the destination of an empty tree", h.sh(&s, "ls -A /conformance/nothing").await?, String::new())
}

pub async fn an_upload_over_the_backends_limit_is_refused(h: &Harness) -> Check {
    let Some(limit) = h.can().max_upload_bytes.filter(|limit| *limit <= 256 << 20) else {
        return Err(Stop::Skipped("uploads have no limit, or one above 256 MiB".into()));
    };
    let s = h.sandbox().await?;
    let over = vec![0; usize::try_from(limit).unwrap_or_default() + 1];
    refused("an upload over the limit", h.put(&s, "/conformance/over", over).await, &["invalid_request"])?;
    h.sh(&s, "test ! -e /conformance/over").await.map(drop)
}

/// Fails at the first difference between two trees.
///
/// # Errors
/// The difference.
pub fn same_tree(actual: &Tree, expected: &Tree) -> Check {
    match actual.difference(expected) {
        Some(difference) => Err(Stop::Failed(difference)),
        None => {
            ensure!(!expected.0.is_empty(), "the suite compares nothing");
            Ok(())
        }
    }
}
