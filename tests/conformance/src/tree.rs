//! File trees as tar streams: made for uploads, read back from downloads.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// What a tree holds at one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// A file: permission bits and content.
    File(u32, Vec<u8>),
    /// A directory: permission bits.
    Dir(u32),
    /// A symbolic link: its target.
    Link(String),
    /// Anything else.
    Other,
}

/// A file tree: paths relative to its root, without a trailing slash.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree(pub BTreeMap<String, Node>);

impl Tree {
    /// The tree with one more file.
    #[must_use]
    pub fn file(mut self, path: &str, mode: u32, content: impl Into<Vec<u8>>) -> Self {
        self.0.insert(path.to_owned(), Node::File(mode, content.into()));
        self
    }

    /// The tree with one more directory.
    #[must_use]
    pub fn dir(mut self, path: &str, mode: u32) -> Self {
        self.0.insert(path.to_owned(), Node::Dir(mode));
        self
    }

    /// The tree with one more symbolic link.
    #[must_use]
    pub fn link(mut self, path: &str, target: &str) -> Self {
        self.0.insert(path.to_owned(), Node::Link(target.to_owned()));
        self
    }

    /// The tree as it is named when `below` is its root directory (mode 0755).
    #[must_use]
    pub fn below(&self, below: &str) -> Self {
        let mut tree = Self::default().dir(below, 0o755);
        tree.0.extend(self.0.iter().map(|(path, node)| (format!("{below}/{path}"), node.clone())));
        tree
    }

    /// Writes the tree as an uncompressed tar file. Its members belong to the ids 1234:1234.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, to: &Path) -> io::Result<()> {
        let mut tar = tar::Builder::new(File::create(to)?);
        for (path, node) in &self.0 {
            let mut header = tar::Header::new_gnu();
            header.set_uid(1234);
            header.set_gid(1234);
            header.set_mtime(1_000_000_000);
            match node {
                Node::File(mode, content) => {
                    header.set_mode(*mode);
                    header.set_size(content.len() as u64);
                    tar.append_data(&mut header, path, content.as_slice())?;
                }
                Node::Dir(mode) => {
                    header.set_entry_type(tar::EntryType::Directory);
                    header.set_mode(*mode);
                    header.set_size(0);
                    tar.append_data(&mut header, format!("{path}/"), io::empty())?;
                }
                Node::Link(target) => {
                    header.set_entry_type(tar::EntryType::Symlink);
                    header.set_mode(0o777);
                    header.set_size(0);
                    tar.append_link(&mut header, path, target)?;
                }
                Node::Other => return Err(io::Error::other("only files, directories and links can be written")),
            }
        }
        tar.finish()
    }

    /// Reads an uncompressed tar file.
    ///
    /// # Errors
    /// It is not a tar file, or a name in it is not UTF-8.
    pub fn read(from: &Path) -> io::Result<Self> {
        let mut tree = Self::default();
        for entry in tar::Archive::new(File::open(from)?).entries()? {
            let mut entry = entry?;
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(io::Error::other);
            let path = text(&entry.path_bytes())?.trim_end_matches('/').to_owned();
            let mode = entry.header().mode()? & 0o7777;
            let node = match entry.header().entry_type() {
                tar::EntryType::Regular | tar::EntryType::Continuous => {
                    let mut content = Vec::new();
                    entry.read_to_end(&mut content)?;
                    Node::File(mode, content)
                }
                tar::EntryType::Directory => Node::Dir(mode),
                tar::EntryType::Symlink => {
                    Node::Link(text(&entry.link_name_bytes().ok_or_else(|| io::Error::other("a link to nothing"))?)?)
                }
                _ => Node::Other,
            };
            tree.0.insert(path, node);
        }
        Ok(tree)
    }

    /// The first difference to `expected`, in words, if there is one.
    #[must_use]
    pub fn difference(&self, expected: &Self) -> Option<String> {
        let show = |node: Option<&Node>| node.map_or("nothing".to_owned(), crate::check::brief);
        let paths = expected.0.keys().chain(self.0.keys());
        paths
            .map(|path| (path, self.0.get(path), expected.0.get(path)))
            .find(|(_, a, b)| a != b)
            .map(|(path, a, b)| format!("{}: expected {}, got {}", crate::check::brief(path), show(b), show(a)))
    }
}
