//! Places with data in them, and archives that no packer would make.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use sandbox_bench_datasets::task::Task;
use sandbox_bench_datasets::{Dataset, Limits, OpenOptions, Severity, validate};
use tempfile::TempDir;

/// A complete, minimal Harbor task.
pub(crate) const TASK: [(&str, &str); 4] = [
    ("task.toml", ""),
    ("instruction.md", "Do it.\n"),
    ("environment/Dockerfile", "FROM debian\n"),
    ("tests/test.sh", "#!/bin/sh\n"),
];

/// A directory with data, and a cache beside it.
pub(crate) struct Place {
    root: TempDir,
    pub(crate) limits: Limits,
}

impl Place {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("data")).unwrap();
        Self { root, limits: Limits::default() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join("data").join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// A good task directory.
    pub(crate) fn task(&self, name: &str) {
        for (path, content) in TASK {
            self.write(&format!("{name}/{path}"), content);
        }
    }

    pub(crate) fn open(&self, name: &str) -> Dataset {
        let options = OpenOptions { limits: self.limits, ..OpenOptions::new(self.root.path().join("cache")) };
        Dataset::open(self.path(name).to_str().unwrap(), options).unwrap()
    }

    /// Every task of a data set that can be loaded.
    pub(crate) fn tasks(&self, name: &str) -> Vec<Task> {
        let dataset = self.open(name);
        dataset.entries().flatten().filter_map(|entry| dataset.load(&entry).ok()).collect()
    }

    /// What is wrong with a data set, one line each, with its place left out. The warning that there is no gold
    /// solution is left out, too.
    pub(crate) fn problems(&self, name: &str) -> Vec<String> {
        let dataset = self.open(name);
        let root = format!("{}/", self.root.path().join("data").display());
        validate(&dataset)
            .filter(|problem| problem.what != "there is no gold solution")
            .map(|problem| {
                let kind = if problem.severity == Severity::Warning { "warning: " } else { "" };
                format!("{kind}{}", problem.to_string().replace(&root, ""))
            })
            .collect()
    }

    /// The only problem.
    pub(crate) fn problem(&self, name: &str) -> String {
        let problems = self.problems(name);
        assert_eq!(problems.len(), 1, "{problems:#?}");
        problems.into_iter().next().unwrap()
    }

    /// The files outside of the cache: to see that nothing else was written.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.root.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

/// A member of an archive, as raw as it gets.
pub(crate) struct Member<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) kind: u8,
    pub(crate) mode: u32,
    pub(crate) link: &'a [u8],
    pub(crate) content: &'a [u8],
}

pub(crate) fn file<'a>(name: &'a str, content: &'a str) -> Member<'a> {
    Member { name: name.as_bytes(), kind: b'0', mode: 0o644, link: b"", content: content.as_bytes() }
}

pub(crate) fn special<'a>(name: &'a str, kind: u8, link: &'a str) -> Member<'a> {
    Member { name: name.as_bytes(), kind, mode: 0o644, link: link.as_bytes(), content: b"" }
}

/// A tar archive of these members.
pub(crate) fn tar<'a>(members: impl IntoIterator<Item = Member<'a>>) -> Vec<u8> {
    let mut out = Vec::new();
    for member in members {
        let mut header = [0u8; 512];
        header[..member.name.len()].copy_from_slice(member.name);
        let mut field = |at: usize, text: String| header[at..at + text.len()].copy_from_slice(text.as_bytes());
        field(100, format!("{:07o}", member.mode));
        field(108, "0001750".into());
        field(116, "0001750".into());
        field(124, format!("{:011o}", member.content.len()));
        field(136, "00000000000".into());
        field(148, " ".repeat(8));
        field(257, "ustar\x0000".into());
        header[156] = member.kind;
        header[157..157 + member.link.len()].copy_from_slice(member.link);
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        out.extend(header);
        out.extend(member.content);
        out.resize(out.len().next_multiple_of(512), 0);
    }
    out.resize(out.len() + 1024, 0);
    out
}

/// The members of a good task.
pub(crate) fn task_members() -> Vec<Member<'static>> {
    TASK.into_iter().map(|(name, content)| file(name, content)).collect()
}

/// A good task with more members after it.
pub(crate) fn task_with<'a>(more: impl IntoIterator<Item = Member<'a>>) -> Vec<u8> {
    tar(task_members().into_iter().chain(more))
}

pub(crate) fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

/// A task row.
pub(crate) fn row(id: &str, archive: &[u8]) -> String {
    row_with(id, &STANDARD.encode(archive))
}

/// A task row with this text as its archive.
pub(crate) fn row_with(id: &str, content: &str) -> String {
    serde_json::json!({
        "task_id": id,
        "prompt": "Do it.",
        "instruction": "Do it.",
        "task_files": { "encoding": "tar.gz+base64", "content": content },
    })
    .to_string()
}

/// The relative paths of all files below a directory.
pub(crate) fn files_below(root: &Path) -> Vec<String> {
    let mut files = Vec::new();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                pending.push(path);
            } else {
                files.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    files.sort();
    files
}
