//! Tar transfers and snapshots.

use std::collections::BTreeMap;
use std::io::Read;

use sandbox_bench_local::engine::{Base, EngineError, EngineSandbox, SandboxConfig, TransferFault};

use crate::support::{bench, config, count, sh};

fn header(kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(1_700_000_000);
    header
}

fn archive(build: impl FnOnce(&mut tar::Builder<Vec<u8>>)) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    build(&mut builder);
    builder.into_inner().unwrap()
}

fn file(builder: &mut tar::Builder<Vec<u8>>, name: &str, mode: u32, bytes: &[u8]) {
    builder.append_data(&mut header(tar::EntryType::Regular, mode, bytes.len() as u64), name, bytes).unwrap();
}

fn link(builder: &mut tar::Builder<Vec<u8>>, name: &str, target: &str) {
    builder.append_link(&mut header(tar::EntryType::Symlink, 0o777, 0), name, target).unwrap();
}

/// A member whose name the tar crate would not write.
fn raw(builder: &mut tar::Builder<Vec<u8>>, name: &str) {
    let mut header = header(tar::EntryType::Regular, 0o644, 1);
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_cksum();
    builder.append(&header, &b"x"[..]).unwrap();
}

async fn read(sandbox: &EngineSandbox, path: &str) -> Vec<(String, tar::EntryType, u32, Vec<u8>)> {
    let mut bytes = Vec::new();
    sandbox.read_tar(path, 1 << 30, &mut bytes).await.unwrap();
    let mut archive = tar::Archive::new(bytes.as_slice());
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        let header = entry.header();
        (entry.path().unwrap().display().to_string(), header.entry_type(), header.mode().unwrap() & 0o7777, content)
    });
    entries.collect()
}

#[tokio::test]
async fn bytes_modes_and_links_survive_the_round_trip() {
    let bench = bench().await;
    let sandbox = bench.sandbox().await;
    let binary: Vec<u8> = (0..2_500_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let sent = archive(|tar| {
        file(tar, "tree/run.sh", 0o755, b"#!/bin/sh\n");
        file(tar, "tree/data.bin", 0o640, &binary);
        link(tar, "tree/link", "../elsewhere");
        tar.append_data(&mut header(tar::EntryType::Directory, 0o700, 0), "tree/empty", &[][..]).unwrap();
    });
    let bytes = sandbox.write_tar("/new/place", None, sent.as_slice()).await.unwrap();
    assert_eq!(bytes, sent.len() as u64);
    let back = read(&sandbox, "/new/place/tree").await;
    let names: Vec<_> = back.iter().map(|(name, _, mode, _)| (name.as_str(), *mode)).collect();
    let expected = [
        ("tree", 0o755),
        ("tree/data.bin", 0o640),
        ("tree/empty", 0o700),
        ("tree/link", 0o777),
        ("tree/run.sh", 0o755),
    ];
    assert_eq!(names, expected);
    assert_eq!(back[1].3, binary);
    assert_eq!(back[3].1, tar::EntryType::Symlink);
    assert_eq!(sh(&sandbox, "stat -c %u:%g:%Y /new/place/tree/run.sh; stat -c %a /new").await, "0:0:1700000000\n755\n");
    bench.close().await;
}

#[tokio::test]
async fn an_upload_replaces_links_and_may_have_an_owner() {
    let bench = bench().await;
    let sandbox = bench.sandbox().await;
    sh(&sandbox, "mkdir /t; echo precious > /t/target; ln -s target /t/file").await;
    let sent = archive(|tar| file(tar, "file", 0o600, b"new"));
    let owner = if bench.engine.facts().non_root_user() { (1000, 1001) } else { (0, 0) };
    sandbox.write_tar("/t", Some(owner), sent.as_slice()).await.unwrap();
    let expected = format!("precious\nnewregular file {}:{}\n", owner.0, owner.1);
    assert_eq!(sh(&sandbox, "cat /t/target /t/file; stat -c '%F %u:%g' /t/file").await, expected);
    bench.close().await;
}

#[tokio::test]
async fn members_that_leave_the_target_are_refused() {
    let bench = bench().await;
    let sandbox = bench.sandbox().await;
    let bad: [Vec<u8>; 5] = [
        archive(|tar| raw(tar, "../escaped")),
        archive(|tar| raw(tar, "/tmp/escaped")),
        archive(|tar| {
            link(tar, "out", "/tmp");
            file(tar, "out/escaped", 0o644, b"x");
        }),
        archive(|tar| tar.append_link(&mut header(tar::EntryType::Link, 0o644, 0), "hard", "/etc/passwd").unwrap()),
        archive(|tar| tar.append_data(&mut header(tar::EntryType::Fifo, 0o644, 0), "pipe", &[][..]).unwrap()),
    ];
    for (i, bytes) in bad.iter().enumerate() {
        let error = sandbox.write_tar("/target", None, bytes.as_slice()).await.unwrap_err();
        assert!(matches!(error, EngineError::Transfer(TransferFault::Refused(_))), "{i}: {error}");
    }
    sh(&sandbox, "ln -s /tmp /target/planted").await;
    let planted = archive(|tar| file(tar, "planted/escaped", 0o644, b"x"));
    sandbox.write_tar("/target", None, planted.as_slice()).await.unwrap_err();
    assert_eq!(sh(&sandbox, "find / -xdev -name escaped; ls -A /target").await, "out\nplanted\n");
    bench.close().await;
}

#[tokio::test]
async fn damaged_archives_are_errors_and_never_hang() {
    let bench = bench().await;
    let sandbox = bench.sandbox().await;
    let good = archive(|tar| file(tar, "file", 0o644, &[7; 5000]));
    for cut in [1, 100, 511, 513, 2000] {
        assert!(sandbox.write_tar("/t", None, &good[..cut]).await.is_err(), "cut at {cut}");
    }
    assert!(sandbox.write_tar("/t", None, &[b'x'; 4096][..]).await.is_err());
    assert_eq!(sandbox.write_tar("/made", None, &[][..]).await.unwrap(), 0);
    assert_eq!(sh(&sandbox, "ls -d /made").await, "/made\n");
    bench.close().await;
}

#[tokio::test]
async fn downloads_are_bounded_and_name_what_is_missing() {
    let bench = bench().await;
    let sandbox = bench.sandbox().await;
    sh(&sandbox, "head -c 1000000 /dev/zero > /big; mkfifo /pipe; ln -s /etc /link; ln -s nowhere /dangling").await;
    let mut sink = Vec::new();
    let error = sandbox.read_tar("/big", 500_000, &mut sink).await.unwrap_err();
    assert!(matches!(error, EngineError::Transfer(TransferFault::TooLarge(_))), "{error}");
    assert!(sink.len() <= 500_000);
    let error = sandbox.read_tar("/absent", 1000, &mut sink).await.unwrap_err();
    assert!(matches!(error, EngineError::Transfer(TransferFault::NotFound(_))), "{error}");
    for link in ["/link", "/link/", "/dangling"] {
        assert_eq!(read(&sandbox, link).await[0].1, tar::EntryType::Symlink, "{link}");
    }
    assert!(read(&sandbox, "/pipe").await.is_empty(), "a pipe is never opened");
    bench.close().await;
}

#[tokio::test]
async fn five_clones_of_a_snapshot_write_independently() {
    let bench = bench().await;
    let sandbox = bench.sandbox().await;
    let dir = sh(&sandbox, "ls -d /etc/*/ | head -1").await;
    let dir = dir.trim();
    let prepare = format!(
        "set -e; mkdir -p /app; echo base > /app/file; rm -r {dir}; mkdir {dir}; touch {dir}/only; \
                           echo kept > /tmp/scratch; sleep 900 >/dev/null 2>&1 &"
    );
    sh(&sandbox, &prepare).await;
    let labels = BTreeMap::from([("tag".to_owned(), "x".to_owned())]);
    let snapshot = sandbox.snapshot("snap", labels.clone()).await.unwrap();
    assert_eq!((snapshot.labels, snapshot.size > 0), (labels, true));
    assert_eq!(sh(&sandbox, "cat /app/file /tmp/scratch").await, "base\nkept\n", "the sandbox goes on");
    assert_eq!(count(&sandbox, "sleep").await, 0, "without its processes");
    sh(&sandbox, "echo after > /app/file").await;
    let mut clones = Vec::new();
    for i in 0..5 {
        let clone = SandboxConfig { base: Base::Snapshot("snap".into()), ..config() };
        let clone = bench.engine.create(clone).await.unwrap();
        sh(&clone, &format!("cat /app/file > /app/mine; echo {i} >> /app/file")).await;
        clones.push(clone);
    }
    for (i, clone) in clones.iter().enumerate() {
        let seen = sh(clone, &format!("cat /app/mine /app/file; ls -A {dir} /tmp")).await;
        assert_eq!(seen, format!("base\nbase\n{i}\n{dir}:\nonly\n\n/tmp:\n"), "deletions of the layer are honoured");
    }
    bench.close().await;
}

#[tokio::test]
async fn layers_stay_as_long_as_something_stands_on_them() {
    let bench = bench().await;
    let sandbox = bench.sandbox().await;
    sh(&sandbox, "echo one > /one").await;
    sandbox.snapshot("first", BTreeMap::new()).await.unwrap();
    sh(&sandbox, "echo two > /two").await;
    sandbox.snapshot("second", BTreeMap::new()).await.unwrap();
    bench.engine.delete_snapshot("first").await.unwrap();
    bench.engine.delete_snapshot("first").await.unwrap();
    assert!(matches!(bench.engine.snapshot("first"), Err(EngineError::NoSnapshot(_))));
    let clone = SandboxConfig { base: Base::Snapshot("second".into()), ..config() };
    let clone = bench.engine.create(clone).await.unwrap();
    bench.engine.delete_snapshot("second").await.unwrap();
    assert_eq!(sh(&clone, "cat /one /two").await, "one\ntwo\n");
    assert_eq!(sh(&sandbox, "cat /one /two").await, "one\ntwo\n");
    let gone = SandboxConfig { base: Base::Snapshot("second".into()), ..config() };
    assert!(matches!(bench.engine.create(gone).await, Err(EngineError::NoSnapshot(_))));
    bench.engine.destroy(&clone.id()).await.unwrap();
    bench.engine.destroy(&sandbox.id()).await.unwrap();
    bench.engine.remove_unused_layers().await.unwrap();
    bench.close().await;
}
