//! The host as a base: its programs, and as much of its configuration as is nobody's secret.
//!
//! `/usr` and `/opt` are used in place. `/etc` is copied without what must not be seen; a copy also belongs to the
//! sandbox's root, so that user management works in it whoever runs us. `/home`, `/root`, `/var` and the like are
//! empty.

use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::caches::touch;
use super::ground::{Ground, Part, has_mounts_below};
use super::state::StateDir;

/// Configuration is small; what is larger than this is something else.
const MAX_FILE: u64 = 16 << 20;

/// Files and directories of `/etc` that hold or name credentials, or identify the machine, though anybody may read
/// them. Compared with the path below `/etc`.
const HIDDEN: &[&str] = &[
    "machine-id",
    "docker",
    "containers",
    "kubernetes",
    "rancher",
    "cni",
    "cloud",
    "letsencrypt",
    "wireguard",
    "openvpn",
    "NetworkManager",
    "wpa_supplicant",
    "ppp",
    "sudoers",
    "sudoers.d",
    "crypttab",
    "environment",
    "netrc",
    "boto.cfg",
    "apt/auth.conf",
    "apt/auth.conf.d",
    // Written anew for each sandbox.
    "hostname",
    "hosts",
    "resolv.conf",
];

/// File name patterns: prefix and suffix.
const HIDDEN_NAMES: &[(&str, &str)] =
    &[("ssh_host_", ""), ("", ".key"), ("", ".p12"), ("", ".pfx"), ("", ".keytab"), ("shadow", ""), ("gshadow", "")];

/// Client configuration that is kept unless it holds a password or token.
const SOMETIMES_SECRET: &[&str] =
    &["pip.conf", "npmrc", ".npmrc", "gitconfig", "sources.list", ".sources", "proxy.conf"];

/// Top-level directories that tasks expect, with their modes.
const SKELETON: &[(&str, u32)] = &[
    ("dev", 0o755),
    ("home", 0o755),
    ("media", 0o755),
    ("mnt", 0o755),
    ("proc", 0o555),
    ("root", 0o700),
    ("run", 0o755),
    ("run/lock", 0o1777),
    ("srv", 0o755),
    ("sys", 0o555),
    ("tmp", 0o1777),
    ("var", 0o755),
    ("var/cache", 0o755),
    ("var/lib", 0o755),
    ("var/log", 0o755),
    ("var/tmp", 0o1777),
];

/// Builds the ground in the state directory, or reuses what an equal host left there.
pub(super) fn ground(state: &StateDir) -> io::Result<Ground> {
    let etc = visible(Path::new("/etc"))?;
    let home = state.host().join(fingerprint(&etc));
    if !home.exists() {
        let draft = state.draft("host");
        directory(&draft, 0o755)?;
        let built = build(&draft, &etc).and_then(|()| fs::rename(&draft, &home));
        if built.is_err() {
            fs::remove_dir_all(&draft)?;
        }
        // Another process may have been faster.
        if !home.exists() {
            built?;
        }
    }
    touch(&home);
    let mut parts = vec![Part { name: "etc".into(), lower: home.join("etc") }];
    parts.extend(in_place().into_iter().map(|name| Part { lower: Path::new("/").join(name), name: name.into() }));
    Ok(Ground { identity: "host".into(), root: home.join("root"), parts })
}

/// Top-level directories of the host that are used as they are. `/usr` must be there; others only if they can be used.
fn in_place() -> Vec<&'static str> {
    let usable = |name: &&str| {
        let path = Path::new("/").join(name);
        let directory = fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_dir());
        *name == "usr" || (directory && !has_mounts_below(&path))
    };
    ["usr", "opt", "bin", "sbin", "lib", "lib32", "lib64", "libx32"].into_iter().filter(usable).collect()
}

fn build(draft: &Path, etc: &[(PathBuf, Metadata)]) -> io::Result<()> {
    let root = draft.join("root");
    fs::create_dir(&root)?;
    fs::set_permissions(&root, Permissions::from_mode(0o755))?;
    for (name, mode) in SKELETON {
        directory(&root.join(name), *mode)?;
    }
    for (link, target) in [("var/run", "../run"), ("var/lock", "../run/lock")] {
        symlink(target, root.join(link))?;
    }
    for entry in fs::read_dir("/")? {
        let entry = entry?;
        // `/bin -> usr/bin` and the like; links to elsewhere lead nowhere inside.
        if let Ok(target) = fs::read_link(entry.path())
            && target.strip_prefix("/").unwrap_or(&target).starts_with("usr")
        {
            symlink(&target, root.join(entry.file_name()))?;
        }
    }
    let copy = draft.join("etc");
    directory(&copy, 0o755)?;
    for (path, metadata) in etc {
        copy_entry(&Path::new("/etc").join(path), &copy.join(path), metadata)?;
    }
    Ok(())
}

fn directory(path: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)?;
    fs::set_permissions(path, Permissions::from_mode(mode))
}

fn copy_entry(from: &Path, to: &Path, metadata: &Metadata) -> io::Result<()> {
    if metadata.is_dir() {
        // Ours to fill, whatever its mode.
        directory(to, metadata.mode() & 0o777 | 0o700)
    } else if metadata.is_symlink() {
        symlink(fs::read_link(from)?, to)
    } else {
        fs::copy(from, to).map(drop)
    }
}

/// Everything below `/etc` that a sandbox may see, parents before children.
fn visible(etc: &Path) -> io::Result<Vec<(PathBuf, Metadata)>> {
    let mut found = Vec::new();
    let mut pending = vec![PathBuf::new()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(etc.join(&directory))? {
            let entry = entry?;
            let path = directory.join(entry.file_name());
            let Ok(metadata) = entry.metadata() else { continue };
            if !shown(etc, &path, &metadata) {
                continue;
            }
            if metadata.is_dir() {
                pending.push(path.clone());
            }
            found.push((path, metadata));
        }
    }
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(found)
}

fn shown(etc: &Path, path: &Path, metadata: &Metadata) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if HIDDEN.iter().any(|hidden| path == Path::new(hidden))
        || HIDDEN_NAMES.iter().any(|(prefix, suffix)| name.starts_with(prefix) && name.ends_with(suffix))
    {
        return false;
    }
    if metadata.is_symlink() {
        return true;
    }
    // What not everybody on the host may read is not for a sandbox either, whoever runs us.
    let needed = if metadata.is_dir() { 0o005 } else { 0o004 };
    if metadata.mode() & needed != needed || !(metadata.is_dir() || metadata.is_file()) {
        return false;
    }
    if metadata.is_file() {
        let sometimes_secret = SOMETIMES_SECRET.iter().any(|suffix| name.ends_with(suffix));
        return metadata.len() <= MAX_FILE
            && !(sometimes_secret && fs::read_to_string(etc.join(path)).is_ok_and(|text| holds_credentials(&text)));
    }
    true
}

/// A URL with a password or token in it, or a line that assigns one.
fn holds_credentials(text: &str) -> bool {
    text.lines().any(|line| {
        let line = line.to_ascii_lowercase();
        let authority =
            line.split("://").skip(1).any(|rest| rest.split('/').next().is_some_and(|host| host.contains('@')));
        authority || ["_auth", "password", "token", "secret"].iter().any(|word| line.contains(word))
    })
}

/// Equal as long as neither the visible files nor the links at the top change.
fn fingerprint(etc: &[(PathBuf, Metadata)]) -> String {
    let mut hash = Sha256::new();
    for (path, metadata) in etc {
        let facts = [u64::from(metadata.mode()), metadata.len(), metadata.mtime() as u64, metadata.mtime_nsec() as u64];
        hash.update(path.as_os_str().as_encoded_bytes());
        facts.iter().for_each(|fact| hash.update(fact.to_le_bytes()));
    }
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn secrets_of_etc_are_not_visible_and_the_rest_is() {
        let etc = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str, mode: u32| {
            let path = etc.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        };
        write("passwd", "root:x:0:0::/root:/bin/sh", 0o644);
        write("shadow", "root:hash", 0o640);
        write("shadow-", "root:hash", 0o644);
        write("machine-id", "abc", 0o444);
        write("ssh/ssh_config", "Host *", 0o644);
        write("ssh/ssh_host_rsa_key", "key", 0o644);
        write("private/thing", "x", 0o600);
        write("app/server.key", "key", 0o644);
        write("docker/key.json", "{}", 0o644);
        write("pip.conf", "index-url = https://me:pw@host/simple", 0o644);
        write("xdg/pip/pip.conf", "index-url = https://host/simple", 0o644);
        write("npmrc", "//registry/:_authToken=abc", 0o644);
        let visible: Vec<String> =
            visible(etc.path()).unwrap().iter().map(|(path, _)| path.display().to_string()).collect();
        assert_eq!(
            visible,
            ["app", "passwd", "private", "ssh", "ssh/ssh_config", "xdg", "xdg/pip", "xdg/pip/pip.conf"]
        );
    }

    #[test]
    fn credentials_are_recognised() {
        assert!(holds_credentials("deb https://user:pw@host/debian stable main"));
        assert!(holds_credentials("//registry.example/:_authToken=x"));
        assert!(!holds_credentials("index-url = https://host/a@b/simple"));
    }
}
