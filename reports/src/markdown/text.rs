//! Words, tables and lists in Markdown.

use crate::render::one_line;

/// Foreign words as they are: nothing in them is markup, in CommonMark or in GitHub's dialect.
pub(crate) fn words(foreign: &str) -> String {
    let line = one_line(foreign);
    let mut text = String::new();
    for (at, c) in line.char_indices() {
        // At the start of a line it would begin a list; before slashes, GitHub makes a link of an address.
        let here =
            (at == 0 && "-+".contains(c)) || (c == ':' && line.get(at..).is_some_and(|rest| rest.starts_with("://")));
        if here || "\\`*_{}[]<>#|~&@$^".contains(c) {
            text.push('\\');
        }
        text.push(c);
    }
    text
}

/// A table; the columns of figures, from the given one on, are aligned to the right. Cells must hold no raw foreign words.
pub(crate) fn table(columns: &[&str], figures: usize, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let rule = |index: usize| if index < figures { "---" } else { "--:" }.to_owned();
    let mut text = line(&columns.iter().map(|column| words(column)).collect::<Vec<_>>());
    text += &line(&(0..columns.len()).map(rule).collect::<Vec<_>>());
    for row in rows {
        text += &line(&row);
    }
    text
}

pub(super) fn list(items: impl IntoIterator<Item = String>) -> String {
    items.into_iter().map(|item| format!("* {item}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_words_are_no_markup() {
        assert_eq!(words("<script>|a\nb|[x](y)"), "\\<script\\>\\|a b\\|\\[x\\](y)");
        assert_eq!(words("http://x @all"), "http\\://x \\@all");
        assert_eq!(words("- a: b-c"), "\\- a: b-c");
    }
}
