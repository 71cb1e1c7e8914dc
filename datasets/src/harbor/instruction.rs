//! The instruction as a solver sees it: LF line ends, no byte order mark, no leading canary lines.
//!
//! Source: Harbor 0.26, verified by running it; only the byte order mark is treated otherwise (Harbor keeps it).

/// Cleans an instruction.
pub(crate) fn clean(text: &str) -> String {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n");
    let mut rest = text.as_str();
    loop {
        let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
        if !is_canary(line) {
            return rest.to_owned();
        }
        rest = after;
        while let Some((_, after)) = rest.split_once('\n').filter(|(line, _)| line.trim().is_empty()) {
            rest = after;
        }
    }
}

/// A whole-line HTML comment, or a line that starts with `#`, with the word "canary".
fn is_canary(line: &str) -> bool {
    let line = line.trim();
    let comment = line.starts_with("<!--") && line.ends_with("-->");
    (comment || line.starts_with('#')) && line.to_lowercase().contains("canary")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leading_canaries_and_the_blanks_after_them_go() {
        assert_eq!(
            clean("<!-- x Canary GUID -->\n# canary 2\n\n  \nDo it.\n# canary stays\n"),
            "Do it.\n# canary stays\n"
        );
        assert_eq!(clean("## BENCHMARK CANARY\r\nDo\r\nit"), "Do\nit");
        assert_eq!(clean("\u{feff}Do it"), "Do it");
        assert_eq!(clean("# Title\ncanary"), "# Title\ncanary");
        assert_eq!(clean("# canary"), "");
    }
}
