//! Digests: of a task's content, and of its environment.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;

use sandbox_bench_core::Digest;
use sandbox_bench_core::digest::Hasher;

use crate::limits::Limits;
use crate::problem::Fault;
use crate::task::{FileSet, ImageSpec};
use crate::tree::{Entry, EntryKind, Tree};

/// Harbor's package content hash: over each file in path order, `path NUL hex(sha256) LF`. File modes do not count.
pub(crate) fn of_files<'a>(tree: &Tree, files: impl Iterator<Item = &'a Entry>) -> Result<Digest, Fault> {
    let mut hasher = Hasher::default();
    for entry in files {
        let path = tree.root.join(&entry.path);
        let failed = |error: io::Error| Fault::io("read", &path, &error);
        let (digest, _) = Digest::of_reader(File::open(&path).map_err(failed)?).map_err(failed)?;
        hasher.update(format!("{}\0{}\n", entry.path, digest.hex()).as_bytes());
    }
    Ok(hasher.finish())
}

/// The fingerprint of an environment: everything that its warm artifact may be made from, `images` being the ways to it.
/// It knows no host paths.
pub(crate) fn of_environment<'a>(
    images: impl IntoIterator<Item = &'a ImageSpec>,
    files: Option<&FileSet>,
    env: &BTreeMap<String, String>,
    workdir: Option<&str>,
    limits: &Limits,
) -> Result<Digest, Fault> {
    let mut parts = Parts::default();
    parts.text("sandbox-bench-environment-1");
    for image in images {
        match image {
            ImageSpec::Image(name) => parts.texts(["image", name]),
            ImageSpec::Dockerfile { context, dockerfile, .. } => {
                parts.texts(["dockerfile", dockerfile]);
                parts.files(context, limits)?;
            }
            ImageSpec::Base => parts.text("base"),
        }
    }
    if let Some(files) = files {
        parts.text("files");
        parts.files(files, limits)?;
    }
    for (name, value) in env {
        parts.texts(["env", name, value]);
    }
    if let Some(workdir) = workdir {
        parts.texts(["workdir", workdir]);
    }
    Ok(parts.0.finish())
}

/// A digest over parts that are told apart by their lengths.
#[derive(Default)]
pub(crate) struct Parts(pub(crate) Hasher);

impl Parts {
    pub(crate) fn text(&mut self, text: &str) {
        self.0.update(&(text.len() as u64).to_be_bytes());
        self.0.update(text.as_bytes());
    }

    fn texts<const N: usize>(&mut self, texts: [&str; N]) {
        for text in texts {
            self.text(text);
        }
    }

    fn files(&mut self, set: &FileSet, limits: &Limits) -> Result<(), Fault> {
        let tree = Tree::read(&set.root, limits)?;
        for entry in &tree.entries {
            let left_out = set.exclude.contains(&entry.path)
                || entry.path.split('/').any(|part| matches!(part, ".DS_Store" | "__pycache__"));
            if left_out {
                continue;
            }
            self.text(&entry.path);
            match (&entry.link, entry.kind) {
                (Some(target), _) => self.texts(["link", &target.to_string_lossy()]),
                (None, EntryKind::File) => {
                    self.text(if entry.executable { "program" } else { "file" });
                    let path = tree.root.join(&entry.path);
                    let failed = |error: io::Error| Fault::io("read", &path, &error);
                    let (digest, _) = Digest::of_reader(File::open(&path).map_err(failed)?).map_err(failed)?;
                    self.text(&digest.hex());
                }
                (None, _) => self.text("directory"),
            }
        }
        Ok(())
    }
}
