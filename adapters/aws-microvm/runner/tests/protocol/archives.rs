//! Trees as archives.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use reqwest::{Method, Response};
use tar::{Archive, Builder, EntryType, Header};

use super::support::*;

fn member(name: &str, kind: EntryType, mode: u32, target: &str) -> Vec<u8> {
    let mut header = Header::new_gnu();
    let raw = header.as_gnu_mut().unwrap();
    raw.name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(mode);
    let content = if kind == EntryType::Regular { target } else { "" };
    if content.is_empty() && !target.is_empty() {
        let raw = header.as_gnu_mut().unwrap();
        raw.linkname[..target.len()].copy_from_slice(target.as_bytes());
    }
    header.set_size(content.len() as u64);
    header.set_cksum();
    let mut builder = Builder::new(Vec::new());
    builder.append(&header, content.as_bytes()).unwrap();
    let mut bytes = builder.into_inner().unwrap();
    bytes.truncate(bytes.len() - 1024);
    bytes
}

/// An archive of these members, of which none is checked.
fn archive(members: &[(&str, EntryType, u32, &str)]) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        members.iter().flat_map(|(name, kind, mode, text)| member(name, *kind, *mode, text)).collect();
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

async fn put(runner: &Runner, query: &str, body: Vec<u8>) -> Response {
    runner.request(Method::PUT, &format!("/v1/tar?{query}")).body(body).send().await.unwrap()
}

#[tokio::test]
async fn a_tree_arrives_with_modes_links_and_empty_directories() {
    let runner = Runner::start().await;
    let dest = runner.path("dest");
    fs::create_dir_all(format!("{dest}/dir")).unwrap();
    fs::write(format!("{dest}/dir/kept"), "kept").unwrap();
    fs::write(runner.path("outside"), "outside").unwrap();
    symlink(runner.path("outside"), format!("{dest}/dir/file")).unwrap();
    symlink("kept", format!("{dest}/dir/link")).unwrap();
    let tree = archive(&[
        ("dir/", EntryType::Directory, 0o750, ""),
        ("dir/file", EntryType::Regular, 0o4711, "content"),
        ("dir/link", EntryType::Symlink, 0o777, "file"),
        ("dir/hard", EntryType::Link, 0o644, "dir/file"),
        ("empty/", EntryType::Directory, 0o700, ""),
    ]);
    let answer = json_of(put(&runner, &format!("dest={dest}"), tree.clone()).await, 200).await;
    assert_eq!((&answer["entries"], &answer["bytes"]), (&5.into(), &7.into()));
    let mode = |name: &str| fs::symlink_metadata(format!("{dest}/{name}")).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("dir"), mode("dir/file"), mode("empty")), (0o750, 0o4711, 0o700));
    assert_eq!(fs::read_link(format!("{dest}/dir/link")).unwrap(), Path::new("file"));
    assert_eq!(fs::read(format!("{dest}/dir/hard")).unwrap(), b"content");
    assert_eq!(fs::read(format!("{dest}/dir/kept")).unwrap(), b"kept", "a tree is merged");
    assert_eq!(fs::read(runner.path("outside")).unwrap(), b"outside", "a link is replaced, not followed");
    // Again, compressed, and from a file.
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&tree).unwrap();
    let request = runner.request(Method::PUT, &format!("/v1/tar?dest={dest}")).header("content-encoding", "gzip");
    json_of(request.body(gzip.finish().unwrap()).send().await.unwrap(), 200).await;
    fs::write(runner.path("tree.tar"), &tree).unwrap();
    let from = format!("dest={}&from={}", runner.path("new/dest"), runner.path("tree.tar"));
    json_of(put(&runner, &from, Vec::new()).await, 200).await;
    assert_eq!(fs::read(runner.path("new/dest/dir/file")).unwrap(), b"content");
}

#[tokio::test]
async fn hostile_archives_are_refused() {
    let runner = Runner::start().await;
    let dest = runner.path("dest");
    for (why, members) in [
        ("absolute", vec![("/tmp/x", EntryType::Regular, 0o644, "x")]),
        ("climbing", vec![("a/../../x", EntryType::Regular, 0o644, "x")]),
        ("link out", vec![("a", EntryType::Symlink, 0o777, "../../etc")]),
        ("absolute link out", vec![("a", EntryType::Symlink, 0o777, "/etc/passwd")]),
        ("hard link out", vec![("a", EntryType::Link, 0o644, "/etc/passwd")]),
        ("climbing hard link", vec![("a", EntryType::Link, 0o644, "../x")]),
        ("device", vec![("null", EntryType::Char, 0o666, "")]),
        ("pipe", vec![("pipe", EntryType::Fifo, 0o666, "")]),
    ] {
        let answer = put(&runner, &format!("dest={dest}"), archive(&members)).await;
        assert_eq!(answer.status(), 400, "{why}");
        refused(answer, 400, "bad_request").await;
    }
    // A link that was there before is not followed to outside either.
    fs::create_dir_all(runner.path("outside")).unwrap();
    symlink(runner.path("outside"), format!("{dest}/door")).unwrap();
    let answer = put(&runner, &format!("dest={dest}"), archive(&[("door/x", EntryType::Regular, 0o644, "x")])).await;
    refused(answer, 400, "bad_request").await;
    assert!(fs::read_dir(runner.path("outside")).unwrap().next().is_none());
    refused(put(&runner, &format!("dest={dest}"), b"no archive at all".repeat(100)).await, 400, "bad_request").await;
    let mut cut = archive(&[("file", EntryType::Regular, 0o644, &"x".repeat(2000))]);
    cut.truncate(1000);
    refused(put(&runner, &format!("dest={dest}"), cut).await, 400, "bad_request").await;
}

/// Names and contents of what an answer holds.
fn members(bytes: impl Read) -> Vec<(String, String)> {
    let mut archive = Archive::new(bytes);
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let mut content = String::new();
        entry.read_to_string(&mut content).unwrap();
        if let Some(target) = entry.link_name().unwrap() {
            content = format!("-> {}", target.display());
        }
        (entry.path().unwrap().display().to_string(), content)
    });
    entries.collect()
}

#[tokio::test]
async fn a_tree_is_sent_whole_and_says_so_at_its_end() {
    let runner = Runner::start().await;
    let root = runner.path("tree");
    fs::create_dir_all(format!("{root}/empty")).unwrap();
    fs::create_dir_all(format!("{root}/left/out")).unwrap();
    fs::write(format!("{root}/file"), "content").unwrap();
    symlink("/nowhere", format!("{root}/link")).unwrap();
    let pipe = std::process::Command::new("mkfifo").arg(format!("{root}/pipe")).status().unwrap();
    assert!(pipe.success());
    let query = format!("/v1/tar?path={root}&exclude=left");
    let answer = runner.request(Method::GET, &query).send().await.unwrap();
    let mut plain = members(answer.bytes().await.unwrap().as_ref());
    assert_eq!(plain.pop(), Some((".sandbox-tar-end".to_owned(), String::new())));
    plain.sort();
    let expected = [("tree", ""), ("tree/empty", ""), ("tree/file", "content"), ("tree/link", "-> /nowhere")];
    assert_eq!(plain, expected.map(|(name, text)| (name.to_owned(), text.to_owned())));
    let answer = runner.request(Method::GET, &query).header("accept-encoding", "gzip").send().await.unwrap();
    assert_eq!(answer.headers()["content-encoding"], "gzip");
    assert_eq!(members(GzDecoder::new(answer.bytes().await.unwrap().as_ref())).len(), 5);

    let file = runner.request(Method::GET, &format!("/v1/tar?path={root}/file")).send().await.unwrap();
    assert_eq!(members(file.bytes().await.unwrap().as_ref())[0], ("file".to_owned(), "content".to_owned()));
    let link = runner.request(Method::GET, &format!("/v1/tar?path={root}/link")).send().await.unwrap();
    assert_eq!(members(link.bytes().await.unwrap().as_ref())[0], ("link".to_owned(), "-> /nowhere".to_owned()));
    let none = runner.request(Method::GET, &format!("/v1/tar?path={root}/none")).send().await.unwrap();
    refused(none, 404, "not_found").await;
    refused(runner.request(Method::GET, "/v1/tar?exclude=x").send().await.unwrap(), 400, "bad_request").await;
}
