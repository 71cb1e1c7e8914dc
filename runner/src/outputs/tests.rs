#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use proptest::prelude::*;
use sandbox_bench_core::completion::{Completion, StreamReport};
use sandbox_bench_core::{Digest, ExecReport, OutputSink, Stream};
use tar::{Builder, EntryType, Header};

use super::{DIRECTORY, Limits, OutputStore, TAIL_BYTES, unpack_safely};

fn objects(run_dir: &Path) -> usize {
    let files = |dir: &Path| fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    files(&run_dir.join(DIRECTORY)).iter().flat_map(|dir| files(dir)).count()
}

proptest! {
    #[test]
    fn a_captured_command_is_stored_byte_for_byte_up_to_the_limit(
        chunks in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..9000)), 0..12),
        limit in 0u64..40_000,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let store = OutputStore::open(dir.path()).unwrap();
        let capture = store.stream("solver", "text/plain", limit);
        let mut written = [Vec::new(), Vec::new()];
        for (err, chunk) in &chunks {
            capture.write(if *err { Stream::Stderr } else { Stream::Stdout }, chunk);
            written[usize::from(*err)].extend_from_slice(chunk);
        }
        let (stdout, stderr) = capture.finish(None).unwrap();
        for ((captured, written), name) in [stdout, stderr].into_iter().zip(written).zip(["solver.stdout", "solver.stderr"]) {
            let tail = &written[written.len().saturating_sub(TAIL_BYTES)..];
            prop_assert_eq!(captured.tail, String::from_utf8_lossy(tail));
            let kept = &written[..written.len().min(usize::try_from(limit).unwrap())];
            prop_assert_eq!(captured.output.is_none(), kept.is_empty());
            if let Some(output) = captured.output {
                prop_assert_eq!(output.name, name);
                prop_assert_eq!(output.size, kept.len() as u64);
                prop_assert_eq!(&output.digest, &Digest::of(kept));
                prop_assert_eq!(output.truncated, kept.len() < written.len());
                prop_assert_eq!(fs::read(dir.path().join(&output.stored)).unwrap(), kept);
                let hex = output.digest.hex();
                prop_assert_eq!(output.stored, format!("outputs/{}/{}", &hex[..2], &hex[2..]));
            }
        }
    }
}

#[test]
fn what_the_backend_dropped_marks_the_object_as_truncated() {
    let dir = tempfile::tempdir().unwrap();
    let store = OutputStore::open(dir.path()).unwrap();
    let capture = store.stream("solver", "text/plain", 100);
    capture.write(Stream::Stdout, b"head tail");
    capture.write(Stream::Stderr, b"whole");
    let mut report = ExecReport::bare(Completion::Exited { code: 0 });
    report.stdout = StreamReport { total_bytes: Some(50_000_000), delivered_bytes: 9, gap_at: Some(4) };
    let (stdout, stderr) = capture.finish(Some(&report)).unwrap();
    assert!(stdout.output.unwrap().truncated);
    assert!(!stderr.output.unwrap().truncated);
}

#[test]
fn equal_contents_are_stored_once_and_a_cut_object_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let store = OutputStore::open(dir.path()).unwrap();
    let host = dir.path().join("download");
    fs::write(&host, vec![7; 100_000]).unwrap();
    let file = store.file("logs", Some("/logs"), &host, "application/x-tar").unwrap();
    let bytes = store.bytes("again", None, &vec![7; 100_000], "text/plain").unwrap();
    assert_eq!((&file.digest, &file.stored), (&bytes.digest, &bytes.stored));
    assert_eq!((file.path.as_deref(), bytes.path), (Some("/logs"), None));
    assert_eq!(objects(dir.path()), 1);

    fs::write(dir.path().join(&file.stored), "cut").unwrap();
    store.file("logs", Some("/logs"), &host, "application/x-tar").unwrap();
    assert_eq!(fs::read(dir.path().join(&file.stored)).unwrap(), vec![7; 100_000]);
    assert!(host.exists(), "the source stays");
}

#[test]
fn nothing_unfinished_stays_behind() {
    let dir = tempfile::tempdir().unwrap();
    let store = OutputStore::open(dir.path()).unwrap();
    let abandoned = store.stream("abandoned", "text/plain", u64::MAX);
    abandoned.write(Stream::Stdout, &[1; 50_000]);
    drop(abandoned);
    assert_eq!(objects(dir.path()), 0);

    fs::write(store.unfinished().join("of-a-killed-process"), "half").unwrap();
    OutputStore::open(dir.path()).unwrap();
    assert_eq!(objects(dir.path()), 0);
}

#[test]
fn a_disk_that_fails_is_told_at_the_end_and_the_tail_is_still_there() {
    let dir = tempfile::tempdir().unwrap();
    let store = OutputStore::open(dir.path()).unwrap();
    let capture = store.stream("solver", "text/plain", u64::MAX);
    fs::remove_dir_all(dir.path().join(DIRECTORY)).unwrap();
    capture.write(Stream::Stdout, &[b'x'; 50_000]);
    capture.write(Stream::Stdout, b"end");
    assert!(capture.finish(None).is_err());
}

const LIMITS: Limits = Limits { bytes: 10_000, members: 50 };

/// A tar file made of headers and contents, names taken as they are.
fn archive(members: &[(EntryType, &str, u32, &[u8])]) -> tempfile::NamedTempFile {
    let mut builder = Builder::new(Vec::new());
    for (kind, name, mode, content) in members {
        let mut header = Header::new_gnu();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(*kind);
        header.set_mode(*mode);
        header.set_size(content.len() as u64);
        if matches!(kind, EntryType::Symlink | EntryType::Link) {
            header.set_link_name("/etc").unwrap();
        }
        header.set_cksum();
        builder.append(&header, *content).unwrap();
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), builder.into_inner().unwrap()).unwrap();
    file
}

#[test]
fn ordinary_members_are_unpacked_with_harmless_modes() {
    let tar = archive(&[
        (EntryType::Directory, "./", 0o755, b""),
        (EntryType::Directory, "verifier/", 0o700, b""),
        (EntryType::Regular, "verifier/reward.txt", 0o600, b"1\n"),
        (EntryType::Regular, "verifier/tool", 0o6755, b"#!"),
        (EntryType::Regular, "verifier/reward.txt", 0o600, b"0"),
        (EntryType::Regular, "deep/without/directories", 0o644, b"x"),
    ]);
    let dest = tempfile::tempdir().unwrap();
    let unpacked = unpack_safely(tar.path(), dest.path(), LIMITS).unwrap();
    assert_eq!((unpacked.files, unpacked.bytes, &unpacked.stopped), (4, 6, &None));
    assert!(unpacked.skipped.is_empty(), "{:?}", unpacked.skipped);
    assert_eq!(fs::read(dest.path().join("verifier/reward.txt")).unwrap(), b"0", "the later member counts");
    assert_eq!(fs::read(dest.path().join("deep/without/directories")).unwrap(), b"x");
    let mode = |name: &str| fs::metadata(dest.path().join(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("verifier/reward.txt"), mode("verifier/tool")), (0o644, 0o755));
}

#[test]
fn hostile_members_are_left_out_and_named() {
    let outside = tempfile::tempdir().unwrap();
    let dest = outside.path().join("dest");
    let long = "n".repeat(99);
    let deep = "d/".repeat(49);
    let tar = archive(&[
        (EntryType::Regular, "../escaped", 0o644, b"x"),
        (EntryType::Regular, "a/../../escaped", 0o644, b"x"),
        (EntryType::Regular, "/tmp/escaped-from-archive", 0o644, b"x"),
        (EntryType::Symlink, "link", 0o777, b""),
        (EntryType::Regular, "link/passwd", 0o644, b"inside"),
        (EntryType::Link, "hard", 0o644, b""),
        (EntryType::Char, "null", 0o666, b""),
        (EntryType::Block, "disk", 0o666, b""),
        (EntryType::Fifo, "pipe", 0o666, b""),
        (EntryType::Regular, "file", 0o644, b"x"),
        (EntryType::Regular, "file/under/file", 0o644, b"x"),
        (EntryType::Directory, "directory", 0o755, b""),
        (EntryType::Regular, "directory", 0o644, b"x"),
        (EntryType::Regular, "", 0o644, b"x"),
        (EntryType::Regular, &long, 0o644, b"x"),
        (EntryType::Regular, &deep, 0o644, b"x"),
    ]);
    let unpacked = unpack_safely(tar.path(), &dest, LIMITS).unwrap();
    let skipped: Vec<&str> = unpacked.skipped.iter().map(|skipped| skipped.name.as_str()).collect();
    assert_eq!(
        skipped,
        [
            "../escaped",
            "a/../../escaped",
            "/tmp/escaped-from-archive",
            "link",
            "hard",
            "null",
            "disk",
            "pipe",
            "file/under/file",
            "directory",
            ""
        ]
    );
    assert_eq!(unpacked.stopped, None);
    assert_eq!(fs::read(dest.join("link/passwd")).unwrap(), b"inside", "a plain directory, not the link");
    assert!(!outside.path().join("escaped").exists());
    assert!(!Path::new("/tmp/escaped-from-archive").exists());
    let made = fs::read_dir(outside.path()).unwrap().count();
    assert_eq!(made, 1, "nothing beside the destination");
}

#[test]
fn bombs_stop_at_the_limits() {
    let dest = tempfile::tempdir().unwrap();
    let big = archive(&[
        (EntryType::Regular, "small", 0o644, b"kept"),
        (EntryType::Regular, "big", 0o644, &[0; 20_000]),
        (EntryType::Regular, "after", 0o644, b"x"),
    ]);
    let unpacked = unpack_safely(big.path(), dest.path(), LIMITS).unwrap();
    assert!(unpacked.stopped.unwrap().contains("larger than the limit"));
    assert_eq!((unpacked.files, unpacked.bytes), (1, 4));
    assert!(!dest.path().join("big").exists() && !dest.path().join("after").exists());

    let dest = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..60).map(|n| format!("file-{n}")).collect();
    let many: Vec<_> = names.iter().map(|name| (EntryType::Regular, name.as_str(), 0o644, &b""[..])).collect();
    let unpacked = unpack_safely(archive(&many).path(), dest.path(), LIMITS).unwrap();
    assert_eq!(unpacked.stopped.as_deref(), Some("more than 50 members"));
    assert_eq!(unpacked.files, 50);

    let dest = tempfile::tempdir().unwrap();
    let name = vec![b'n'; 3 << 20];
    let header =
        archive(&[(EntryType::GNULongName, "././@LongLink", 0o644, &name), (EntryType::Regular, "x", 0o644, b"")]);
    let unpacked = unpack_safely(header.path(), dest.path(), LIMITS).unwrap();
    assert!(unpacked.stopped.unwrap().contains("too large"));
}

#[test]
fn a_sparse_file_counts_with_its_full_size() {
    let dest = tempfile::tempdir().unwrap();
    let source = tempfile::NamedTempFile::new().unwrap();
    source.as_file().set_len(1 << 40).unwrap();
    let mut builder = Builder::new(Vec::new());
    builder.append_path_with_name(source.path(), "sparse").unwrap();
    let tar = tempfile::NamedTempFile::new().unwrap();
    fs::write(tar.path(), builder.into_inner().unwrap()).unwrap();
    let unpacked = unpack_safely(tar.path(), dest.path(), LIMITS).unwrap();
    assert!(unpacked.stopped.unwrap().contains("larger than the limit"));
    assert_eq!(unpacked.files, 0);
}

proptest! {
    #[test]
    fn a_damaged_archive_neither_panics_nor_leaves_the_destination(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
        cut in any::<prop::sample::Index>(),
    ) {
        let tar = archive(&[
            (EntryType::Directory, "logs/", 0o755, b""),
            (EntryType::GNULongName, "././@LongLink", 0o644, b"logs/a-long-name"),
            (EntryType::Regular, "logs/a", 0o644, &[1; 700]),
            (EntryType::Symlink, "logs/l", 0o777, b""),
        ]);
        let mut bytes = fs::read(tar.path()).unwrap();
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        fs::write(tar.path(), bytes).unwrap();
        let outside = tempfile::tempdir().unwrap();
        let unpacked = unpack_safely(tar.path(), &outside.path().join("dest"), LIMITS).unwrap();
        prop_assert!(unpacked.bytes <= LIMITS.bytes);
        prop_assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    }
}
