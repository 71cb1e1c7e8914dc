//! Hunks: finding where one belongs in a file and putting it there.
//!
//! The rules are those of `git apply` without fuzz: every line of the old side must be there byte for byte; a hunk that
//! begins at the first line belongs at the beginning, one without context after it at the end.

use diffy::Line;

/// One hunk, in the direction in which it is applied.
pub(super) struct Hunk<'a> {
    /// Line number of the old side as the patch says it, from 1; 0 for an empty file.
    start: usize,
    old: Vec<&'a [u8]>,
    new: Vec<&'a [u8]>,
    leading: usize,
    trailing: usize,
}

impl<'a> Hunk<'a> {
    pub(super) fn new(hunk: &diffy::Hunk<'a, [u8]>, reverse: bool) -> Self {
        let side = |new_side: bool| -> Vec<&'a [u8]> {
            let wanted = |line: &Line<'a, [u8]>| match line {
                Line::Context(text) => Some(*text),
                Line::Insert(text) => new_side.then_some(*text),
                Line::Delete(text) => (!new_side).then_some(*text),
            };
            hunk.lines().iter().filter_map(wanted).collect()
        };
        let is_context = |line: &&Line<'a, [u8]>| matches!(line, Line::Context(_));
        let range = if reverse { hunk.new_range() } else { hunk.old_range() };
        Self {
            start: range.start(),
            old: side(reverse),
            new: side(!reverse),
            leading: hunk.lines().iter().take_while(is_context).count(),
            trailing: hunk.lines().iter().rev().take_while(is_context).count(),
        }
    }

    /// The line index at which the patch says that the hunk belongs.
    fn expected(&self) -> usize {
        if self.old.is_empty() { self.start } else { self.start.saturating_sub(1) }
    }

    fn fits(&self, lines: &[&[u8]], at: usize) -> bool {
        let Some(end) = at.checked_add(self.old.len()) else { return false };
        let in_place = (self.start > 1 || at == 0) && (self.trailing > 0 || end == lines.len());
        in_place && lines.get(at..end) == Some(self.old.as_slice())
    }

    /// Where it fits at or after `from`: at the expected line, or, if not `exact`, the nearest other one (the later of
    /// two equally near ones). Hunks without context are never moved: nothing says where else they belong.
    fn position(&self, lines: &[&[u8]], from: usize, shift: isize, exact: bool) -> Option<usize> {
        let expected = self.expected().checked_add_signed(shift)?;
        if expected >= from && self.fits(lines, expected) {
            return Some(expected);
        }
        if exact || self.leading + self.trailing == 0 {
            return None;
        }
        let farthest = lines.len().max(expected);
        (1..=farthest)
            .flat_map(|distance| [expected.checked_add(distance), expected.checked_sub(distance)])
            .flatten()
            .find(|&at| at >= from && self.fits(lines, at))
    }
}

/// The file after all hunks.
///
/// # Errors
/// The number of the hunk, from 1, that fits nowhere.
pub(super) fn apply(content: &[u8], hunks: &[Hunk<'_>], exact: bool) -> Result<Vec<u8>, usize> {
    let lines: Vec<&[u8]> = content.split_inclusive(|&byte| byte == b'\n').collect();
    let mut out = Vec::with_capacity(content.len());
    let (mut done, mut shift) = (0usize, 0isize);
    for (number, hunk) in (1usize..).zip(hunks) {
        let at = hunk.position(&lines, done, shift, exact).ok_or(number)?;
        shift = at as isize - hunk.expected() as isize;
        out.extend(lines.get(done..at).unwrap_or_default().concat());
        out.extend(hunk.new.concat());
        done = at + hunk.old.len();
    }
    out.extend(lines.get(done..).unwrap_or_default().concat());
    Ok(out)
}
