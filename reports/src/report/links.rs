//! Relative links from a report to the evidence.

use std::io;
use std::path::{Component, Path};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What stands for itself in a segment of a path. A colon does not: it could make a scheme of a name.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The link from directory `from` to directory `to`, ending in `/`, or empty if they are the same. Both must be there.
///
/// # Errors
/// One of them cannot be found.
pub(super) fn between(from: &Path, to: &Path) -> io::Result<String> {
    let (from, to) = (from.canonicalize()?, to.canonicalize()?);
    let common = from.components().zip(to.components()).take_while(|(a, b)| a == b).count();
    let up = from.components().skip(common).map(|_| "../".to_owned());
    let down = to.components().skip(common).map(|part| segment(part) + "/");
    Ok(up.chain(down).collect())
}

/// The link to a file by its path in a run directory, if it is a plain path and the file is there.
pub(super) fn inside(run: &Path, base: &str, path: &str) -> Option<String> {
    let relative = Path::new(path);
    let plain = relative.components().all(|part| matches!(part, Component::Normal(_)));
    if path.is_empty() || !plain || !run.join(relative).is_file() {
        return None;
    }
    let segments: Vec<String> = relative.components().map(segment).collect();
    Some(format!("{base}{}", segments.join("/")))
}

fn segment(part: Component<'_>) -> String {
    utf8_percent_encode(&part.as_os_str().to_string_lossy(), SEGMENT).to_string()
}
