//! Shapes of request members, and the service's words about values that do not fit them.

use serde_json::Value;

/// What a member may be.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    Text(Text),
    Word(&'static [&'static str]),
    Whole {
        min: i64,
        max: i64,
    },
    Flag,
    List {
        of: &'static Shape,
        min: usize,
        max: usize,
    },
    Map {
        key: Text,
        value: Text,
        max: usize,
    },
    Structure(&'static [Member]),
    /// Exactly one of its members.
    Union(&'static [Member]),
}

/// A text's length and characters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text {
    pub(super) min: usize,
    pub(super) max: usize,
    pub(super) pattern: Option<Pattern>,
}

/// The service's pattern, for its message, and whether a text fits.
pub(super) type Pattern = (&'static str, fn(&str) -> bool);

/// A member of a structure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    pub(super) required: bool,
}

pub(super) const fn required(name: &'static str, shape: Shape) -> Member {
    Member { name, shape, required: true }
}

pub(super) const fn optional(name: &'static str, shape: Shape) -> Member {
    Member { name, shape, required: false }
}

/// What is wrong with a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Misfit {
    /// Another type than the model has, or a member that it does not have.
    Foreign(String),
    /// A constraint of the model, in the service's words.
    Constraint(String),
}

/// Everything that is wrong with `value`, a structure of these members.
pub(super) fn misfits(members: &[Member], value: &Value) -> Vec<Misfit> {
    let mut found = Vec::new();
    structure(members, "", value, &mut found);
    found
}

/// The service's message about constraints that were broken.
pub(super) fn message(broken: &[String]) -> String {
    let plural = if broken.len() == 1 { "" } else { "s" };
    format!("{} validation error{plural} detected: {}", broken.len(), broken.join("; "))
}

/// All members below these, as `parent.child`; members of lists as `parent[].child`.
pub(super) fn names(members: &[Member], prefix: &str) -> Vec<String> {
    fn below(shape: &Shape, path: &str) -> Vec<String> {
        match shape {
            Shape::List { of, .. } => below(of, &format!("{path}[]")),
            Shape::Structure(members) | Shape::Union(members) => names(members, &format!("{path}.")),
            _ => Vec::new(),
        }
    }
    members
        .iter()
        .flat_map(|member| {
            let path = format!("{prefix}{}", member.name);
            let inner = below(&member.shape, &path);
            std::iter::once(path).chain(inner)
        })
        .collect()
}

fn structure(members: &[Member], path: &str, value: &Value, found: &mut Vec<Misfit>) {
    let Some(fields) = value.as_object() else { return foreign(path, value, found) };
    let at = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    for name in fields.keys().filter(|name| members.iter().all(|member| member.name != **name)) {
        found.push(Misfit::Foreign(format!("'{}' is not a member of the service model", at(name))));
    }
    for member in members {
        match fields.get(member.name) {
            None | Some(Value::Null) if member.required => {
                found.push(broken("null", &at(member.name), "not be null"));
            }
            None | Some(Value::Null) => {}
            Some(value) => check(&member.shape, &at(member.name), value, found),
        }
    }
}

fn check(shape: &Shape, path: &str, value: &Value, found: &mut Vec<Misfit>) {
    match (shape, value) {
        (Shape::Text(text), Value::String(value)) => found.extend(text.misfit(path, value)),
        (Shape::Word(words), Value::String(value)) => {
            if !words.contains(&value.as_str()) {
                let rule = format!("satisfy enum value set: [{}]", words.join(", "));
                found.push(broken(&format!("'{value}'"), path, &rule));
            }
        }
        (Shape::Whole { min, max }, Value::Number(number)) => match number.as_i64() {
            Some(whole) if whole < *min => {
                let rule = format!("have value greater than or equal to {min}");
                found.push(broken(&format!("'{whole}'"), path, &rule));
            }
            Some(whole) if whole > *max => {
                let rule = format!("have value less than or equal to {max}");
                found.push(broken(&format!("'{whole}'"), path, &rule));
            }
            Some(_) => {}
            None => foreign(path, value, found),
        },
        (Shape::Flag, Value::Bool(_)) => {}
        (Shape::List { of, min, max }, Value::Array(items)) => {
            length(path, "[...]", items.len(), *min, *max, found);
            for (at, item) in items.iter().enumerate() {
                check(of, &format!("{path}.{}.member", at + 1), item, found);
            }
        }
        (Shape::Map { key, value: each, max }, Value::Object(entries)) => {
            length(path, "{...}", entries.len(), 0, *max, found);
            for (name, value) in entries {
                found.extend(key.misfit(&format!("{path}.key"), name));
                check(&Shape::Text(*each), &format!("{path}.{name}.member"), value, found);
            }
        }
        (Shape::Structure(members), Value::Object(_)) => structure(members, path, value, found),
        (Shape::Union(members), Value::Object(fields)) => {
            if fields.values().filter(|value| !value.is_null()).count() != 1 {
                found.push(Misfit::Foreign(format!("'{path}' must have exactly one member")));
            }
            structure(members, path, value, found);
        }
        _ => foreign(path, value, found),
    }
}

impl Text {
    fn misfit(&self, path: &str, value: &str) -> Option<Misfit> {
        let shown = format!("'{}'", value.chars().take(SHOWN).collect::<String>());
        let count = value.chars().count();
        if count < self.min {
            let rule = format!("have length greater than or equal to {}", self.min);
            return Some(broken(&shown, path, &rule));
        }
        if count > self.max {
            let rule = format!("have length less than or equal to {}", self.max);
            // As it says of secret values: what is too long is not repeated.
            return Some(Misfit::Constraint(format!(
                "Value at '{path}' failed to satisfy constraint: Member must {rule}"
            )));
        }
        let (pattern, fits) = self.pattern?;
        (!fits(value)).then(|| broken(&shown, path, &format!("satisfy regular expression pattern: {pattern}")))
    }
}

/// Characters of a value that a message repeats.
const SHOWN: usize = 200;

fn length(path: &str, shown: &str, count: usize, min: usize, max: usize, found: &mut Vec<Misfit>) {
    if count < min {
        found.push(broken(shown, path, &format!("have length greater than or equal to {min}")));
    } else if count > max {
        found.push(broken(shown, path, &format!("have length less than or equal to {max}")));
    }
}

fn broken(shown: &str, path: &str, rule: &str) -> Misfit {
    Misfit::Constraint(format!("Value {shown} at '{path}' failed to satisfy constraint: Member must {rule}"))
}

fn foreign(path: &str, value: &Value, found: &mut Vec<Misfit>) {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a structure",
    };
    found.push(Misfit::Foreign(format!("'{path}' cannot be {kind}")));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const LETTERS: Text =
        Text { min: 1, max: 3, pattern: Some(("[a-z]+", |text| text.bytes().all(|b| b.is_ascii_lowercase()))) };
    const MEMBERS: &[Member] = &[
        required("name", Shape::Text(LETTERS)),
        optional("kind", Shape::Word(&["A", "B"])),
        optional("counts", Shape::List { of: &Shape::Whole { min: 1, max: 9 }, min: 1, max: 2 }),
        optional("choice", Shape::Union(&[optional("x", Shape::Flag), optional("y", Shape::Structure(&[]))])),
    ];

    fn texts(value: Value) -> Vec<String> {
        let text = |misfit| match misfit {
            Misfit::Constraint(text) | Misfit::Foreign(text) => text,
        };
        misfits(MEMBERS, &value).into_iter().map(text).collect()
    }

    #[test]
    fn what_fits_is_not_complained_about() {
        let none: [&str; 0] = [];
        assert_eq!(texts(json!({ "name": "abc", "kind": "A", "counts": [1, 9], "choice": { "y": {} } })), none);
        assert_eq!(texts(json!({ "name": "a", "kind": null })), none);
    }

    #[test]
    fn every_mistake_is_named_in_the_words_of_the_service() {
        assert_eq!(texts(json!({})), ["Value null at 'name' failed to satisfy constraint: Member must not be null"]);
        assert_eq!(
            texts(json!({ "name": "A1", "kind": "C", "counts": [0, 10, 1] })),
            [
                "Value 'A1' at 'name' failed to satisfy constraint: Member must satisfy regular expression pattern: [a-z]+",
                "Value 'C' at 'kind' failed to satisfy constraint: Member must satisfy enum value set: [A, B]",
                "Value [...] at 'counts' failed to satisfy constraint: Member must have length less than or equal to 2",
                "Value '0' at 'counts.1.member' failed to satisfy constraint: Member must have value greater than or equal to 1",
                "Value '10' at 'counts.2.member' failed to satisfy constraint: Member must have value less than or equal to 9",
            ]
        );
        assert_eq!(
            texts(json!({ "name": "a", "extra": 1, "counts": "x", "choice": { "x": true, "y": {} } })),
            [
                "'extra' is not a member of the service model",
                "'counts' cannot be a string",
                "'choice' must have exactly one member",
            ]
        );
    }

    #[test]
    fn names_reach_into_lists_and_unions() {
        assert_eq!(names(MEMBERS, ""), ["name", "kind", "counts", "choice", "choice.x", "choice.y"]);
    }
}
