//! Deterministic faults: rules that say which requests meet which effects.
//!
//! Effects on the wire work for every vendor. [`Effect::Flag`] is for what only a vendor module can do (a stale list, a
//! delete that does not delete): handlers look for it in their request's [`Flags`].

mod body;
mod script;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use globset::{GlobBuilder, GlobMatcher};

pub(crate) use self::body::cut;
pub(crate) use self::script::header_map;
pub use self::script::{Effect, Ending, Rule, Script, ScriptError};

/// The rules of one emulator, with their counts.
#[derive(Default)]
pub struct Faults(Mutex<Vec<Armed>>);

struct Armed {
    rule: Rule,
    path: GlobMatcher,
    /// Requests that matched so far.
    seen: u64,
}

/// The semantic faults of one request, by name. A request extension; always present.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags(BTreeMap<String, u64>);

impl Flags {
    /// Whether the script asks for it.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Its value, if the script asks for it; what it means is the flag's business. 0 if the script gives none.
    pub fn value(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }
}

impl FromIterator<(String, u64)> for Flags {
    fn from_iter<I: IntoIterator<Item = (String, u64)>>(flags: I) -> Flags {
        Flags(flags.into_iter().collect())
    }
}

impl Faults {
    /// Replaces all rules; counts start anew.
    ///
    /// # Errors
    /// A path that is no glob, an answer that is no HTTP; the old rules stay.
    pub fn set(&self, script: Script) -> Result<(), ScriptError> {
        *self.lock() = script.rules.into_iter().map(arm).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Adds a rule after the others.
    ///
    /// # Errors
    /// A path that is no glob, an answer that is no HTTP.
    pub fn add(&self, rule: Rule) -> Result<(), ScriptError> {
        let armed = arm(rule)?;
        self.lock().push(armed);
        Ok(())
    }

    /// How many requests each rule has matched so far, in the order of the rules; skipped ones count.
    pub fn matched(&self) -> Vec<u64> {
        self.lock().iter().map(|armed| armed.seen).collect()
    }

    /// The effects on this request, in the order of the rules. Counts it.
    pub(crate) fn take(&self, method: &str, path: &str, query: &str) -> Vec<Effect> {
        let mut effects = Vec::new();
        for armed in self.lock().iter_mut() {
            let rule = &armed.rule;
            let matches = rule.method.as_deref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(method))
                && rule.query.as_deref().is_none_or(|part| query.contains(part))
                && armed.path.is_match(path);
            if matches {
                let turn = armed.seen;
                armed.seen += 1;
                if turn >= rule.skip && rule.times.is_none_or(|times| turn - rule.skip < times) {
                    effects.push(rule.effect.clone());
                }
            }
        }
        effects
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Armed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn arm(rule: Rule) -> Result<Armed, ScriptError> {
    let glob = GlobBuilder::new(&rule.path).literal_separator(true).build();
    let glob = glob.map_err(|error| ScriptError(format!("path {:?}: {error}", rule.path)))?;
    rule.effect.check()?;
    Ok(Armed { rule, path: glob.compile_matcher(), seen: 0 })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn faults(text: &str) -> Faults {
        let faults = Faults::default();
        faults.set(text.parse().unwrap()).unwrap();
        faults
    }

    #[test]
    fn a_rule_skips_then_applies_as_often_as_it_says() {
        let faults = faults(
            r#"
            [[rule]]
            method = "POST"
            path = "/api/sandbox/*/stop"
            skip = 1
            times = 2
            effect = { kind = "answer", status = 503 }
            "#,
        );
        assert!(faults.take("GET", "/api/sandbox/a/stop", "").is_empty(), "another method");
        assert!(faults.take("POST", "/api/sandbox/a/b/stop", "").is_empty(), "a star is one segment");
        let hits: Vec<bool> =
            (0..5).map(|_| !faults.take("POST", "/api/sandbox/a/stop", "force=true").is_empty()).collect();
        assert_eq!(hits, [false, true, true, false, false]);
        assert_eq!(faults.matched(), [5]);
    }

    #[test]
    fn effects_of_several_rules_add_up_in_their_order() {
        let faults = faults(
            r#"
            [[rule]]
            path = "/**"
            effect = { kind = "delay", ms = 5 }
            [[rule]]
            path = "/logs"
            query = "follow=true"
            effect = { kind = "cut", after = 10, ending = "reset" }
            "#,
        );
        let delay = Effect::Delay { ms: 5 };
        assert_eq!(faults.take("GET", "/logs", ""), std::slice::from_ref(&delay));
        let cut = Effect::Cut { after: 10, ending: Ending::Reset };
        assert_eq!(faults.take("GET", "/logs", "follow=true&x=1"), [delay, cut]);
    }

    #[test]
    fn scripts_with_mistakes_are_refused() {
        for bad in ["[[rule]]\npath = '/'", "[[rule]]\npath='/'\neffect={kind='explode'}", "rules = []"] {
            assert!(bad.parse::<Script>().is_err(), "{bad}");
        }
        let no_glob = "[[rule]]\npath='/[a'\neffect={kind='reset'}";
        let no_status = "[[rule]]\npath='/'\neffect={kind='answer', status=1000}";
        let no_header = "[[rule]]\npath='/'\neffect={kind='answer', status=500, headers={'a b'='c'}}";
        for bad in [no_glob, no_status, no_header] {
            assert!(Faults::default().set(bad.parse().unwrap()).is_err(), "{bad}");
        }
    }
}
