//! Words in which a task or a sandbox had a hand.

/// Most characters that are shown of foreign words.
const MOST: usize = 300;

/// The words on one line, without what could drive a terminal or turn the reading direction around, and shortened.
pub(crate) fn plain(words: &str) -> String {
    one_line(words).chars().take(MOST).collect()
}

/// The same at full length.
pub(crate) fn one_line(words: &str) -> String {
    let one_line = words.split_whitespace().collect::<Vec<_>>().join(" ");
    one_line.chars().filter(|c| !c.is_control() && !turns(*c)).collect()
}

/// Marks of bidirectional text: with them a name can be made to look like another one.
fn turns(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
