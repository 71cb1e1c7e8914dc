//! Names of archive members: only those that stay inside the archive's own directory.

use unicode_normalization::UnicodeNormalization as _;

use crate::problem::{Fault, excerpt};

const REPACK: &str = "repack the archive with relative names inside it";

/// The parts of a member's name; empty for the archive's own root.
///
/// # Errors
/// Absolute names, names with `..`, control characters, or bytes that are not UTF-8.
pub(crate) fn parts(name: &[u8]) -> Result<Vec<String>, Fault> {
    let Ok(name) = std::str::from_utf8(name) else {
        let shown = excerpt(&String::from_utf8_lossy(name));
        return Err(Fault::new(format!("member name {shown} is not UTF-8"), "repack the archive with UTF-8 names"));
    };
    let refused = |why: &str| Fault::new(format!("member {} {why}", excerpt(name)), REPACK);
    if name.starts_with('/') {
        return Err(refused("has an absolute name"));
    }
    if name.chars().any(char::is_control) {
        return Err(refused("has a control character in its name"));
    }
    if name.split('/').any(|part| part == "..") {
        return Err(refused("climbs out of the archive"));
    }
    Ok(name.split('/').filter(|part| !matches!(*part, "" | ".")).map(str::to_owned).collect())
}

/// Where a symbolic link in `directory` with this target leads, as parts below the root.
///
/// # Errors
/// Targets that are absolute, leave the root, or are not UTF-8.
pub(crate) fn link_target(directory: &[String], target: &[u8]) -> Result<Vec<String>, Fault> {
    let shown = excerpt(&String::from_utf8_lossy(target));
    let outside = || Fault::new(format!("a symbolic link to {shown} leads out of the task"), "replace it by the file");
    let target = std::str::from_utf8(target).map_err(|_| outside())?;
    if target.starts_with('/') || target.is_empty() || target.chars().any(char::is_control) {
        return Err(outside());
    }
    let mut place = directory.to_vec();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                place.pop().ok_or_else(outside)?;
            }
            other => place.push(other.to_owned()),
        }
    }
    Ok(place)
}

/// The form under which two names count as the same: joined by `/`, in Unicode NFC.
pub(crate) fn key(parts: &[String]) -> String {
    parts.join("/").nfc().collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn strings(parts: &[&str]) -> Vec<String> {
        parts.iter().map(|&part| part.to_owned()).collect()
    }

    #[test]
    fn names_are_normalised() {
        assert_eq!(parts(b"./tests//test.sh").unwrap(), strings(&["tests", "test.sh"]));
        assert_eq!(parts(b".").unwrap(), strings(&[]));
        assert_eq!(parts("größe.txt".as_bytes()).unwrap(), strings(&["größe.txt"]));
    }

    #[test]
    fn names_that_escape_are_refused() {
        for bad in [&b"/etc/passwd"[..], b"../x", b"a/../../x", b"a/..", b"a\nb", b"a\0b", b"\xff"] {
            assert!(parts(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn link_targets_stay_inside() {
        let here = strings(&["tests"]);
        assert_eq!(link_target(&here, b"../environment/a").unwrap(), strings(&["environment", "a"]));
        for bad in [&b"/etc/passwd"[..], b"../../x", b"", b"\xff", b"a\nb"] {
            assert!(link_target(&here, bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn composed_and_decomposed_names_are_the_same() {
        assert_eq!(key(&strings(&["e\u{301}"])), key(&strings(&["\u{e9}"])));
    }
}
