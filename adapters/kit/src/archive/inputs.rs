//! Inputs as members of one archive whose root is the sandbox's root.

use std::fs::File;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use sandbox_bench_core::{Error, Input, Payload, Result};
use tar::EntryType;

use super::stream::{append, header};

/// The path below the root that an absolute path in the sandbox names.
///
/// # Errors
/// `InvalidRequest` if it is not absolute or climbs with `..`.
pub fn relative(path: &str) -> Result<PathBuf> {
    let refused = |why: &str| Err(Error::invalid(format!("{path:?} cannot be a path in the sandbox: {why}")));
    if !path.starts_with('/') {
        return refused("it is not absolute");
    }
    if path.contains('\0') {
        return refused("it holds a NUL byte");
    }
    if path.split('/').any(|part| part == "..") {
        return refused("it climbs with ..");
    }
    Ok(path.split('/').filter(|part| !part.is_empty() && *part != ".").collect())
}

/// Writes all inputs: files with their modes, trees below their destinations; everything belongs to root.
///
/// # Errors
/// `InvalidRequest`, naming the input that cannot be read or whose destination cannot be one.
pub fn write_inputs<W: io::Write>(builder: &mut tar::Builder<W>, inputs: &[Input]) -> Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs());
    inputs.iter().try_for_each(|input| {
        let to = relative(&input.entry.destination)?;
        let failed = |e: io::Error| Error::invalid(format!("input {}: cannot be sent", input.entry.name)).because(e);
        match &input.payload {
            Payload::Bytes { bytes, mode } => {
                let header = header(EntryType::Regular, *mode, bytes.len() as u64, now);
                append(builder, header, &to, bytes.as_ref()).map_err(failed)
            }
            Payload::File { path, mode } => File::open(path)
                .and_then(|file| {
                    let header = header(EntryType::Regular, *mode, file.metadata()?.len(), now);
                    append(builder, header, &to, file)
                })
                .map_err(failed),
            Payload::Tree { tar } => {
                let source = File::open(tar).map_err(failed)?;
                graft(builder, &to, io::BufReader::new(source)).map_err(failed)
            }
        }
    })
}

/// How long the archive of these inputs is, in bytes. Reads all of them.
///
/// # Errors
/// As [`write_inputs`].
pub fn inputs_size(inputs: &[Input]) -> Result<u64> {
    let mut builder = tar::Builder::new(Count(0));
    write_inputs(&mut builder, inputs)?;
    let end = |e: io::Error| Error::invalid("cannot end the archive").because(e);
    builder.into_inner().map(|Count(bytes)| bytes).map_err(end)
}

/// Counts bytes and forgets them.
struct Count(u64);

impl io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Copies all members of the archive `source` to below `to`. Members may be files, directories and links only, and
/// none may lie outside. The archive's own root is left out, because its mode would be put on a directory that may be
/// there already, such as `/tmp`; it is sent only when there is nothing else.
fn graft<W: io::Write>(builder: &mut tar::Builder<W>, to: &Path, source: impl io::Read) -> io::Result<()> {
    let mut members = 0u64;
    for entry in tar::Archive::new(source).entries()? {
        let mut entry = entry?;
        let kind = entry.header().entry_type();
        if kind == EntryType::XGlobalHeader {
            continue;
        }
        let member = entry.path()?.into_owned();
        let Some(path) = below(to, &member)? else { continue };
        members += 1;
        let member_header = |kind, size| -> io::Result<tar::Header> {
            let old = entry.header();
            Ok(header(kind, old.mode()?, size, old.mtime()?))
        };
        match kind {
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                let header = member_header(EntryType::Regular, entry.size())?;
                append(builder, header, &path, &mut entry)?;
            }
            EntryType::Directory => append(builder, member_header(kind, 0)?, &path, io::empty())?,
            EntryType::Symlink | EntryType::Link => {
                let target = entry.link_name()?.ok_or_else(|| refused(&member, "a link without a target"))?;
                let target = match kind {
                    EntryType::Symlink => target.into_owned(),
                    _ => below(to, &target).ok().flatten().ok_or_else(|| refused(&member, "a hard link to outside"))?,
                };
                builder.append_link(&mut member_header(kind, 0)?, &path, target)?;
            }
            _ => return Err(refused(&member, "neither a file, nor a directory, nor a link")),
        }
    }
    if members == 0 && to.components().next().is_some() {
        append(builder, header(EntryType::Directory, 0o755, 0, 0), to, io::empty())?;
    }
    Ok(())
}

/// The place of an archive member below `to`; none for the archive's own root.
fn below(to: &Path, member: &Path) -> io::Result<Option<PathBuf>> {
    let mut path = to.to_path_buf();
    for component in member.components() {
        match component {
            Component::Normal(part) => path.push(part),
            Component::CurDir => {}
            _ => return Err(refused(member, "a name that leads outside")),
        }
    }
    Ok((path != to).then_some(path))
}

fn refused(member: &Path, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("member {} of the tree: {why}", member.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use sandbox_bench_core::ErrorKind;

    /// What arrives: name, kind, mode, link target, content.
    type Member = (String, EntryType, u32, Option<String>, Vec<u8>);

    fn grafted(to: &str, source: &[u8]) -> io::Result<Vec<Member>> {
        let mut builder = tar::Builder::new(Vec::new());
        graft(&mut builder, Path::new(to), source)?;
        let out = builder.into_inner()?;
        tar::Archive::new(out.as_slice())
            .entries()?
            .map(|entry| {
                let mut entry = entry?;
                let mut content = Vec::new();
                io::Read::read_to_end(&mut entry, &mut content)?;
                let header = entry.header();
                assert_eq!((header.uid()?, header.gid()?), (0, 0));
                let link = entry.link_name()?.map(|link| link.display().to_string());
                let name = entry.path()?.display().to_string();
                Ok((name, header.entry_type(), header.mode()?, link, content))
            })
            .collect()
    }

    fn tree(members: &[(&str, EntryType, u32, &str)]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, kind, mode, text) in members {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_mode(*mode);
            header.set_uid(1000);
            header.set_gid(1000);
            header.set_size(0);
            match kind {
                EntryType::Symlink | EntryType::Link => builder.append_link(&mut header, name, text).unwrap(),
                _ => {
                    header.set_size(text.len() as u64);
                    builder.append_data(&mut header, name, text.as_bytes()).unwrap();
                }
            }
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn a_tree_moves_below_its_destination_with_modes_links_and_empty_directories() {
        let source = tree(&[
            ("./", EntryType::Directory, 0o700, ""),
            ("./bin/", EntryType::Directory, 0o750, ""),
            ("./bin/run", EntryType::Regular, 0o4755, "#!/bin/sh"),
            ("./link", EntryType::Symlink, 0o777, "../else/where"),
            ("./hard", EntryType::Link, 0o644, "bin/run"),
        ]);
        let strings = |(n, k, m, l, c): Member| (n, k, m, l, String::from_utf8(c).unwrap());
        let out: Vec<_> = grafted("srv/app", &source).unwrap().into_iter().map(strings).collect();
        let line = |n: &str, k, m, l: Option<&str>, c: &str| (n.to_owned(), k, m, l.map(str::to_owned), c.to_owned());
        assert_eq!(
            out,
            [
                line("srv/app/bin", EntryType::Directory, 0o750, None, ""),
                line("srv/app/bin/run", EntryType::Regular, 0o4755, None, "#!/bin/sh"),
                line("srv/app/link", EntryType::Symlink, 0o777, Some("../else/where"), ""),
                line("srv/app/hard", EntryType::Link, 0o644, Some("srv/app/bin/run"), ""),
            ]
        );
    }

    #[test]
    fn an_empty_tree_still_makes_its_destination() {
        let out = grafted("empty", &tree(&[("./", EntryType::Directory, 0o700, "")])).unwrap();
        assert_eq!(out.len(), 1);
        assert_eq!(out[0].0, "empty");
        assert!(grafted("", &tree(&[])).unwrap().is_empty());
    }

    #[test]
    fn devices_and_ways_out_are_refused() {
        for (name, kind, target) in [
            ("null", EntryType::Char, ""),
            ("pipe", EntryType::Fifo, ""),
            ("hard", EntryType::Link, "../../etc/shadow"),
            ("hard", EntryType::Link, "/etc/shadow"),
        ] {
            let error = grafted("srv", &tree(&[(name, kind, 0o644, target)])).unwrap_err();
            assert!(error.to_string().contains(name), "{error}");
        }
        assert!(below(Path::new("srv"), Path::new("../x")).is_err());
        assert!(below(Path::new("srv"), Path::new("/x")).is_err());
    }

    #[test]
    fn the_size_is_known_before_anything_is_sent() {
        use sandbox_bench_core::Stage;
        let inputs = [
            Input::bytes("a", "/srv/a", Stage::Setup, 0o644, vec![1; 1000]),
            Input::bytes("b", &format!("/srv/{}", "long/".repeat(40)), Stage::Setup, 0o644, ""),
        ];
        let mut builder = tar::Builder::new(Vec::new());
        write_inputs(&mut builder, &inputs).unwrap();
        let bytes = builder.into_inner().unwrap();
        assert_eq!(inputs_size(&inputs).unwrap(), bytes.len() as u64);
        let bad = Input::bytes("c", "relative", Stage::Setup, 0o644, "");
        assert_eq!(*inputs_size(&[bad]).unwrap_err().kind(), ErrorKind::InvalidRequest);
    }

    #[test]
    fn destinations_are_absolute_and_do_not_climb() {
        assert_eq!(relative("/a//b/./c/").unwrap(), Path::new("a/b/c"));
        assert_eq!(relative("/").unwrap(), Path::new(""));
        for bad in ["", "a", "/a/../b", "/..", "/a\0b"] {
            assert_eq!(*relative(bad).unwrap_err().kind(), ErrorKind::InvalidRequest, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn long_names_and_any_content_survive(name in "[a-z/]{1,300}", content in prop::collection::vec(any::<u8>(), 0..2000)) {
            let name: String = name.split('/').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
            prop_assume!(!name.is_empty());
            let mut builder = tar::Builder::new(Vec::new());
            let header = header(EntryType::Regular, 0o640, content.len() as u64, 1);
            append(&mut builder, header, Path::new(&name), content.as_slice()).unwrap();
            let out = grafted("d", &builder.into_inner().unwrap()).unwrap();
            prop_assert_eq!(out, [(format!("d/{name}"), EntryType::Regular, 0o640, None, content)]);
        }

        #[test]
        fn a_damaged_tree_never_panics(source in prop::collection::vec(any::<u8>(), 0..3000), flip in any::<(prop::sample::Index, u8)>()) {
            let _ = grafted("d", &source);
            let mut tree = tree(&[("a", EntryType::Regular, 0o644, "x"), ("b", EntryType::Symlink, 0o777, "a")]);
            let at = flip.0.index(tree.len());
            tree[at] ^= flip.1;
            let _ = grafted("d", &tree);
        }
    }
}
