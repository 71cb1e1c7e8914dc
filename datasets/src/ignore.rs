//! Ignore files: `.gitignore` syntax (also of `.harborignore`) and `.dockerignore` syntax.
//!
//! Sources: gitignore(5); the Dockerfile reference, ".dockerignore file".

use globset::{GlobBuilder, GlobMatcher};

/// The rules of one ignore file; paths are relative to its directory, with forward slashes.
#[derive(Debug, Default)]
pub(crate) struct IgnoreRules {
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    glob: GlobMatcher,
    negated: bool,
    directory_only: bool,
}

impl IgnoreRules {
    /// Reads gitignore syntax. Lines that are no valid pattern match nothing.
    pub(crate) fn git(text: &str) -> Self {
        Self { rules: text.lines().filter_map(git_rule).collect() }
    }

    /// Reads dockerignore syntax: every pattern begins at the root of the context.
    pub(crate) fn docker(text: &str) -> Self {
        let rule = |line: &str| {
            let line = line.trim();
            if line.starts_with('#') {
                return None;
            }
            let (negated, pattern) = line.strip_prefix('!').map_or((false, line), |pattern| (true, pattern.trim()));
            let pattern = pattern.trim_start_matches("./").trim_matches('/');
            rule(pattern, negated, false)
        };
        Self { rules: text.lines().filter_map(rule).collect() }
    }

    /// What the last rule that matches the path, or a directory above it, says: true to ignore, false to keep.
    pub(crate) fn verdict(&self, path: &str, is_directory: bool) -> Option<bool> {
        self.rules.iter().rev().find(|rule| rule.matches(path, is_directory)).map(|rule| !rule.negated)
    }

    /// True if the path is ignored.
    pub(crate) fn ignores(&self, path: &str, is_directory: bool) -> bool {
        self.verdict(path, is_directory) == Some(true)
    }
}

impl Rule {
    fn matches(&self, path: &str, is_directory: bool) -> bool {
        let above = path.match_indices('/').filter_map(|(end, _)| path.get(..end));
        ((is_directory || !self.directory_only) && self.glob.is_match(path))
            || above.into_iter().any(|directory| self.glob.is_match(directory))
    }
}

fn git_rule(line: &str) -> Option<Rule> {
    let line = if line.ends_with("\\ ") { line } else { line.trim_end() };
    if line.starts_with('#') {
        return None;
    }
    let (negated, pattern) = line.strip_prefix('!').map_or((false, line), |pattern| (true, pattern));
    let (directory_only, pattern) = pattern.strip_suffix('/').map_or((false, pattern), |pattern| (true, pattern));
    let anchored = pattern.contains('/');
    let pattern = pattern.trim_start_matches('/');
    if anchored {
        rule(pattern, negated, directory_only)
    } else {
        rule(&in_any_directory(pattern), negated, directory_only)
    }
}

fn in_any_directory(pattern: &str) -> String {
    if pattern.is_empty() { String::new() } else { format!("**/{pattern}") }
}

fn rule(pattern: &str, negated: bool, directory_only: bool) -> Option<Rule> {
    if pattern.is_empty() {
        return None;
    }
    // Braces mean alternatives to globset and nothing to ignore files.
    let pattern = pattern.replace('{', "\\{").replace('}', "\\}");
    let glob = GlobBuilder::new(&pattern).literal_separator(true).backslash_escape(true).build().ok()?;
    Some(Rule { glob: glob.compile_matcher(), negated, directory_only })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_patterns() {
        let rules = IgnoreRules::git("# c\n*.pyc\n__pycache__/\n/top\ndocs/*.md\n!docs/keep.md\n\\#odd\na{b\nx/**/y\n");
        for ignored in
            ["a.pyc", "deep/er/b.pyc", "tests/__pycache__/x", "top", "docs/a.md", "#odd", "a{b", "x/y", "x/1/2/y"]
        {
            assert!(rules.ignores(ignored, false), "{ignored}");
        }
        for kept in ["__pycache__", "sub/top", "docs/keep.md", "docs/sub/a.md", "other"] {
            assert!(!rules.ignores(kept, false), "{kept}");
        }
        assert!(rules.ignores("__pycache__", true));
    }

    #[test]
    fn docker_patterns_begin_at_the_root() {
        let rules = IgnoreRules::docker("node_modules\n./a/*\n!a/b\n**/*.log\n# c\n");
        for ignored in ["node_modules/x/y", "a/c", "x/y.log", "y.log"] {
            assert!(rules.ignores(ignored, false), "{ignored}");
        }
        for kept in ["sub/node_modules", "a/b", "a"] {
            assert!(!rules.ignores(kept, false), "{kept}");
        }
    }
}
