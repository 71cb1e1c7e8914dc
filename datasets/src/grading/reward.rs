//! Reward files, as Harbor reads them.
//!
//! Source: Harbor 0.26, verifier; the accepted and refused values were verified by running it. Two of Python's number
//! forms (`1_0` and full-width digits) are refused here.

use std::collections::BTreeMap;

use sandbox_bench_core::Decision;
use serde_json::{Map, Value};

/// The largest reward file that is read, in bytes.
pub const MAX_BYTES: usize = 1 << 20;

/// Why there is no reward. None of these is a rejection: the verifier gave no readable word.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RewardError {
    /// There is no reward file.
    #[error("the verifier wrote neither reward.json nor reward.txt")]
    Missing,
    /// The file has no bytes.
    #[error("{0} is empty")]
    Empty(&'static str),
    /// The file is larger than [`MAX_BYTES`].
    #[error("{0} is larger than 1 MiB")]
    TooLarge(&'static str),
    /// The file holds something else.
    #[error("{file} is not readable as a reward: {why}")]
    Unreadable {
        /// Which file.
        file: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The JSON object has no keys.
    #[error("reward.json holds no reward")]
    NoRewards,
}

/// Rewards by key.
pub type Rewards = BTreeMap<String, f64>;

/// What the reward files say.
#[derive(Debug, Clone, PartialEq)]
pub struct Reward {
    /// The rewards.
    pub rewards: Rewards,
    /// Set if both files are there and say different things. `reward.json` counts.
    pub disagreement: Option<String>,
}

/// Reads both files, of which either may be missing. `reward.json` wins.
///
/// # Errors
/// When the file that counts cannot be read as a reward.
pub fn read(json: Option<&[u8]>, text: Option<&[u8]>) -> Result<Reward, RewardError> {
    let by_text = text.map(parse_text);
    let Some(json) = json else {
        let rewards = by_text.ok_or(RewardError::Missing)??;
        return Ok(Reward { rewards, disagreement: None });
    };
    let rewards = parse_json(json)?;
    let disagreement = match by_text {
        Some(Ok(other)) if other.get("reward") != rewards.get("reward") => {
            Some("reward.txt says something else than reward.json".to_owned())
        }
        _ => None,
    };
    Ok(Reward { rewards, disagreement })
}

/// The pass rule: the key `reward` must be at least 1. Without that key all rewards must be: if all are, the task is
/// accepted; if none is, rejected; if they differ, nothing is decided, because nobody has said which one counts.
#[must_use]
pub fn decide(rewards: &Rewards) -> Decision {
    let passes = |value: &f64| *value >= 1.0;
    let passed = match rewards.get("reward") {
        Some(value) => vec![passes(value)],
        None => rewards.values().map(passes).collect(),
    };
    match (passed.contains(&true), passed.contains(&false)) {
        (true, false) => Decision::Accepted,
        (false, true) => Decision::Rejected,
        _ => Decision::Undecided,
    }
}

fn parse_text(bytes: &[u8]) -> Result<Rewards, RewardError> {
    let file = "reward.txt";
    sized(bytes, file)?;
    let unreadable = |why: &str| RewardError::Unreadable { file, why: why.to_owned() };
    let text = std::str::from_utf8(bytes).map_err(|_| unreadable("it is not UTF-8"))?;
    let value: f64 = text.trim().parse().map_err(|_| unreadable("it is no number"))?;
    if !value.is_finite() {
        return Err(unreadable("it is no finite number"));
    }
    Ok(BTreeMap::from([("reward".to_owned(), value)]))
}

fn parse_json(bytes: &[u8]) -> Result<Rewards, RewardError> {
    let file = "reward.json";
    sized(bytes, file)?;
    let unreadable = |why: String| RewardError::Unreadable { file, why };
    let object: Map<String, Value> =
        serde_json::from_slice(bytes).map_err(|_| unreadable("it is no JSON object of numbers".to_owned()))?;
    let rewards = object
        .into_iter()
        .map(|(key, value)| match value {
            Value::Bool(flag) => Ok((key, f64::from(u8::from(flag)))),
            Value::Number(number) => match number.as_f64().filter(|number| number.is_finite()) {
                Some(number) => Ok((key, number)),
                None => Err(unreadable("a reward is no finite number".to_owned())),
            },
            _ => Err(unreadable("a reward is no number".to_owned())),
        })
        .collect::<Result<Rewards, _>>()?;
    if rewards.is_empty() { Err(RewardError::NoRewards) } else { Ok(rewards) }
}

fn sized(bytes: &[u8], file: &'static str) -> Result<(), RewardError> {
    match bytes.len() {
        0 => Err(RewardError::Empty(file)),
        length if length > MAX_BYTES => Err(RewardError::TooLarge(file)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn text(content: &str) -> Result<f64, RewardError> {
        read(None, Some(content.as_bytes())).map(|reward| reward.rewards["reward"])
    }

    fn json(content: &str) -> Result<Rewards, RewardError> {
        read(Some(content.as_bytes()), None).map(|reward| reward.rewards)
    }

    fn decided(pairs: &[(&str, f64)]) -> Decision {
        decide(&pairs.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect())
    }

    #[test]
    fn texts() {
        for (content, value) in [("1", 1.0), ("0\n", 0.0), (" 0.5 \r\n", 0.5), ("1e0", 1.0), ("+1.", 1.0), ("-3", -3.0)]
        {
            assert_eq!(text(content), Ok(value), "{content:?}");
        }
        assert_eq!(text(""), Err(RewardError::Empty("reward.txt")));
        for bad in [" ", "\n", "yes", "0x1", "NaN", "inf", "-Infinity", "1e309", "1_0", "１", "1 0", "1,0"] {
            assert!(matches!(text(bad), Err(RewardError::Unreadable { .. })), "{bad:?}");
        }
    }

    #[test]
    fn objects() {
        assert_eq!(json("{\"reward\": 1, \"other\": true, \"c\": 0.5}").unwrap().len(), 3);
        assert_eq!(json("{\"reward\": false}").unwrap()["reward"], 0.0);
        assert_eq!(json("{}"), Err(RewardError::NoRewards));
        assert_eq!(json(""), Err(RewardError::Empty("reward.json")));
        for bad in [
            "1",
            "[1]",
            "null",
            "\"1\"",
            "{\"reward\": \"1\"}",
            "{\"reward\": null}",
            "{\"reward\": {\"a\": 1}}",
            "{\"reward\": [1]}",
            "{\"reward\": NaN}",
            "{\"reward\": Infinity}",
            "{\"reward\": 1e309}",
            "\u{feff}{\"reward\": 1}",
            "{\"reward\": 1",
            " ",
        ] {
            assert!(matches!(json(bad), Err(RewardError::Unreadable { .. })), "{bad:?}");
        }
    }

    #[test]
    fn huge_files_are_not_read() {
        assert_eq!(text(&"1".repeat(MAX_BYTES + 1)), Err(RewardError::TooLarge("reward.txt")));
    }

    #[test]
    fn json_wins_and_a_difference_is_told() {
        let both = |json: &str, text: &str| read(Some(json.as_bytes()), Some(text.as_bytes()));
        let reward = both("{\"reward\": 0}", "1").unwrap();
        assert_eq!(decide(&reward.rewards), Decision::Rejected);
        assert!(reward.disagreement.is_some());
        assert_eq!(both("{\"reward\": 1}", "1.0").unwrap().disagreement, None);
        assert!(both("broken", "1").is_err(), "a broken reward.json is not passed over");
        assert_eq!(read(None, None), Err(RewardError::Missing));
    }

    #[test]
    fn the_pass_rule() {
        assert_eq!(decided(&[("reward", 1.0)]), Decision::Accepted);
        assert_eq!(decided(&[("reward", 0.99)]), Decision::Rejected);
        assert_eq!(decided(&[("reward", 2.0), ("other", 0.0)]), Decision::Accepted);
        assert_eq!(decided(&[("score", 1.0)]), Decision::Accepted);
    }

    #[test]
    fn several_rewards_without_a_main_one_must_agree() {
        assert_eq!(decided(&[("correctness", 1.0), ("speed", 1.5)]), Decision::Accepted);
        assert_eq!(decided(&[("correctness", 0.0), ("speed", 0.9)]), Decision::Rejected);
        assert_eq!(decided(&[("correctness", 1.0), ("speed", 0.9)]), Decision::Undecided);
        assert_eq!(decided(&[]), Decision::Undecided);
    }
}
