//! Words of instructions: quotes, escapes, variables.

use std::collections::BTreeMap;

/// Splits at white space outside quotes; quotes and backslashes are taken away.
pub(super) fn split(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, quote) {
            ('\\', None | Some('"')) => word.get_or_insert_default().extend(chars.next()),
            ('"' | '\'', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (c, Some(open)) if c == open => quote = None,
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// Replaces `$NAME`, `${NAME}`, `${NAME:-default}` and `${NAME:+alternative}`. Unknown names become empty.
pub(super) fn expand(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut result = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, after) = rest.split_at(at);
        result.push_str(before);
        let after = after.get(1..).unwrap_or_default();
        rest = if let Some((inner, tail)) = after.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            result.push_str(&braced(inner, variables));
            tail
        } else {
            let end = after.find(|c: char| c != '_' && !c.is_ascii_alphanumeric()).unwrap_or(after.len());
            let (name, tail) = after.split_at(end);
            if name.is_empty() {
                result.push('$');
            }
            result.push_str(variables.get(name).map_or("", String::as_str));
            tail
        };
    }
    result + rest
}

fn braced(inner: &str, variables: &BTreeMap<String, String>) -> String {
    let value = |name: &str| variables.get(name).filter(|value| !value.is_empty()).cloned();
    if let Some((name, default)) = inner.split_once(":-") {
        value(name).unwrap_or_else(|| default.to_owned())
    } else if let Some((name, alternative)) = inner.split_once(":+") {
        value(name).map(|_| alternative.to_owned()).unwrap_or_default()
    } else {
        value(inner).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_keep_what_is_quoted_together() {
        assert_eq!(split(r#"a "b c" 'd $e' f\ g "" h"#), ["a", "b c", "d $e", "f g", "", "h"]);
        assert_eq!(split("  "), [""; 0]);
    }

    #[test]
    fn variables_are_replaced() {
        let variables = BTreeMap::from([("A".to_owned(), "1".to_owned()), ("EMPTY".to_owned(), String::new())]);
        assert_eq!(expand("$A/${A}x${B:-2}${A:+y}${EMPTY:-z}$NO.$", &variables), "1/1x2yz.$");
    }
}
