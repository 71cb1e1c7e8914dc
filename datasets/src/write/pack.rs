//! A directory as a gzip tar archive that depends on nothing but names, contents, links and executable bits.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

use crate::limits::Limits;
use crate::problem::Fault;
use crate::tree::{Entry, EntryKind, Tree};

/// Packs everything below `directory` but `.git`. Owners and times are zero, modes 755 or 644, names in order.
pub(crate) fn pack(directory: &Path, limits: &Limits) -> Result<Vec<u8>, Fault> {
    let tree = Tree::read(directory, limits)?;
    let gzip = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    let mut archive = Builder::new(gzip);
    let failed = |error: io::Error| Fault::io("pack", directory, &error);
    for entry in &tree.entries {
        add(&mut archive, &tree, entry).map_err(failed)?;
    }
    archive.into_inner().and_then(flate2::write::GzEncoder::finish).map_err(failed)
}

fn add(archive: &mut Builder<impl Write>, tree: &Tree, entry: &Entry) -> io::Result<()> {
    let mut header = Header::new_gnu();
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mode(if entry.kind == EntryKind::Directory || entry.executable { 0o755 } else { 0o644 });
    header.set_size(0);
    if let Some(target) = &entry.link {
        header.set_entry_type(EntryType::Symlink);
        header.set_mode(0o777);
        return archive.append_link(&mut header, &entry.path, target);
    }
    if entry.kind == EntryKind::Directory {
        header.set_entry_type(EntryType::Directory);
        return archive.append_data(&mut header, format!("{}/", entry.path), io::empty());
    }
    let file = File::open(tree.root.join(&entry.path))?;
    header.set_size(file.metadata()?.len());
    archive.append_data(&mut header, &entry.path, file)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;
    use crate::archive;

    #[test]
    fn the_archive_depends_on_content_alone_and_unpacks_to_the_same() {
        let make = |root: &Path| {
            fs::create_dir_all(root.join("empty")).unwrap();
            fs::create_dir_all(root.join("a".repeat(120))).unwrap();
            fs::write(root.join("a".repeat(120)).join("file"), "x").unwrap();
            fs::write(root.join("run.sh"), "#!/bin/sh\n").unwrap();
            fs::set_permissions(root.join("run.sh"), Permissions::from_mode(0o700)).unwrap();
            symlink("run.sh", root.join("link")).unwrap();
        };
        let (one, two, out) =
            (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        make(one.path());
        make(two.path());
        fs::set_permissions(two.path().join("run.sh"), Permissions::from_mode(0o755)).unwrap();
        let limits = Limits::default();
        let packed = pack(one.path(), &limits).unwrap();
        assert_eq!(packed, pack(two.path(), &limits).unwrap());
        archive::unpack(packed.as_slice(), packed.len() as u64, out.path(), &limits).unwrap();
        let (before, after) = (Tree::read(one.path(), &limits).unwrap(), Tree::read(out.path(), &limits).unwrap());
        assert_eq!(before.entries, after.entries);
    }
}
