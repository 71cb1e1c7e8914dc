//! A Dockerfile as a recipe of steps that can be replayed in a sandbox without a builder.
//!
//! [`parse`] takes any text and never fails: what cannot be replayed is said in [`Recipe::unsupported`], with the line,
//! and the image and working directory are still found where the text has them. Only the final stage counts, and what
//! it continues from (`FROM stage`); a `COPY --from` another stage is unsupported.
//!
//! Differences from a builder, by choice: a base image's own variables are not known (only `PATH` has its usual value),
//! and `.dockerignore` is the caller's business.

mod lines;
mod stage;
mod words;

use std::collections::BTreeMap;

use stage::Stage;

use crate::task::{Recipe, Unreplayable};

/// Reads a Dockerfile.
#[must_use]
pub fn parse(text: &str) -> Recipe {
    let parsed = lines::parse(text);
    let mut globals = BTreeMap::new();
    let mut named: BTreeMap<String, Stage> = BTreeMap::new();
    let mut current: Option<(Option<String>, Stage)> = None;
    let mut early_fault = None;
    for instruction in &parsed.instructions {
        match (instruction.name.as_str(), &mut current) {
            ("FROM", _) => {
                if let Some((Some(name), finished)) = current.take() {
                    named.insert(name, finished);
                }
                let (name, mut stage) = match from(&instruction.rest, parsed.escape, &globals) {
                    Ok((image, name)) => {
                        (name, named.get(&image.to_ascii_lowercase()).cloned().unwrap_or_else(|| Stage::new(image)))
                    }
                    Err(why) => {
                        let mut stage = Stage::new(String::new());
                        stage.unsupported(instruction.line, &why);
                        (None, stage)
                    }
                };
                if let Some((line, why)) = early_fault.take() {
                    stage.unsupported(line, why);
                }
                current = Some((name, stage));
            }
            ("ARG", None) => {
                for word in words::expand_words(&instruction.rest, parsed.escape, &globals).unwrap_or_default() {
                    if let Some((name, value)) = word.split_once('=') {
                        globals.insert(name.to_owned(), value.to_owned());
                    }
                }
            }
            (_, None) => early_fault = Some((instruction.line, "there is an instruction before FROM")),
            (_, Some((_, stage))) => stage.add(instruction, parsed.escape, &globals),
        }
    }
    match current {
        Some((_, stage)) => stage.into_recipe(),
        None => Recipe {
            from: String::new(),
            steps: Vec::new(),
            workdir: None,
            unsupported: Some(Unreplayable { line: 1, why: "there is no FROM".to_owned() }),
        },
    }
}

/// Image and lower-case stage name of `FROM [--platform=…] image [AS name]`.
fn from(rest: &str, escape: char, globals: &BTreeMap<String, String>) -> Result<(String, Option<String>), String> {
    let mut words = words::expand_words(rest, escape, globals)?;
    words.retain(|word| !word.starts_with("--platform="));
    match words.as_slice() {
        [image] if !image.is_empty() => Ok((image.clone(), None)),
        [image, r#as, name] if !image.is_empty() && r#as.eq_ignore_ascii_case("as") => {
            Ok((image.clone(), Some(name.to_ascii_lowercase())))
        }
        _ => Err("FROM needs an image".to_owned()),
    }
}

#[cfg(test)]
mod tests;
