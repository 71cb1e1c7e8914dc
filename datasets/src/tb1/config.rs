//! `task.yaml` of a terminal-bench 1 task.
//!
//! Source: terminal-bench 0.2.18, task model. Numbers may be quoted; unknown keys are ignored.

use std::time::Duration;

use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::{Map, Value};

use crate::problem::Fault;
use crate::task::TestParser;

#[derive(Debug, Deserialize)]
pub(super) struct Config {
    pub(super) instruction: String,
    pub(super) difficulty: Difficulty,
    #[serde(default)]
    pub(super) author_name: Option<String>,
    #[serde(default)]
    pub(super) author_email: Option<String>,
    #[serde(default)]
    pub(super) category: Option<String>,
    #[serde(default)]
    pub(super) tags: Vec<String>,
    #[serde(default = "pytest")]
    pub(super) parser_name: TestParser,
    #[serde(default = "agent_timeout", deserialize_with = "seconds")]
    pub(super) max_agent_timeout_sec: Duration,
    #[serde(default = "test_timeout", deserialize_with = "seconds")]
    pub(super) max_test_timeout_sec: Duration,
    #[serde(default)]
    pub(super) run_tests_in_same_shell: bool,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Difficulty {
    Easy,
    Medium,
    Hard,
    Unknown,
}

fn pytest() -> TestParser {
    TestParser::Pytest
}

fn agent_timeout() -> Duration {
    Duration::from_secs(360)
}

fn test_timeout() -> Duration {
    Duration::from_secs(60)
}

/// A number, or a number in quotes.
fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Number {
        Float(f64),
        Text(String),
    }
    let number = match Number::deserialize(deserializer)? {
        Number::Float(number) => Some(number),
        Number::Text(text) => text.trim().parse().ok(),
    };
    number
        .filter(|number| *number > 0.0)
        .and_then(|number| Duration::try_from_secs_f64(number).ok())
        .ok_or_else(|| D::Error::custom("a limit must be a positive number of seconds"))
}

pub(super) fn parse(text: &str) -> Result<Config, Fault> {
    let config: Config = serde_saphyr::from_str(text).map_err(|error| {
        let message = error.to_string();
        Fault::new(format!("task.yaml: {}", message.lines().next().unwrap_or_default()), "correct the YAML")
    })?;
    if config.instruction.trim().is_empty() {
        return Err(Fault::new("the instruction in task.yaml is empty", "write what the solver is to do"));
    }
    Ok(config)
}

impl Config {
    pub(super) fn metadata(&self) -> Map<String, Value> {
        let difficulty = match self.difficulty {
            Difficulty::Easy => "easy",
            Difficulty::Medium => "medium",
            Difficulty::Hard => "hard",
            Difficulty::Unknown => "unknown",
        };
        let texts = [
            ("difficulty", Some(difficulty)),
            ("author_name", self.author_name.as_deref()),
            ("author_email", self.author_email.as_deref()),
            ("category", self.category.as_deref()),
        ];
        let mut metadata: Map<String, Value> =
            texts.into_iter().filter_map(|(key, text)| text.map(|text| (key.to_owned(), text.into()))).collect();
        metadata.insert("tags".to_owned(), self.tags.iter().map(String::as_str).collect());
        metadata
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn defaults_and_quoted_numbers() {
        let config =
            parse("# canary\ninstruction: |\n  Do it.\ndifficulty: easy\nmax_test_timeout_sec: \"90\"\nnew_key: 1\n")
                .unwrap();
        assert_eq!(config.max_agent_timeout_sec, Duration::from_secs(360));
        assert_eq!(config.max_test_timeout_sec, Duration::from_secs(90));
        assert_eq!(config.parser_name, TestParser::Pytest);
        assert_eq!(config.metadata()["difficulty"], "easy");
    }

    #[test]
    fn faults_are_told() {
        for bad in [
            "difficulty: easy",
            "instruction: x",
            "instruction: x\ndifficulty: impossible",
            "instruction: x\ndifficulty: easy\nparser_name: junit",
            "instruction: x\ndifficulty: easy\nmax_test_timeout_sec: -1",
            "instruction: x\ndifficulty: easy\nmax_test_timeout_sec: .nan",
            "instruction: ''\ndifficulty: easy",
            "[",
            "",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
