//! Pages of lists, with tokens that say nothing to whoever holds them.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::error::{ApiError, Result};

/// Items of a page, unless the request says fewer.
const PAGE: usize = 50;
/// Random bytes before a token's content: the live service's tokens have 700 to 800 characters.
const NOISE: usize = 512;

#[derive(Serialize, Deserialize)]
struct Position {
    list: String,
    /// The number of the last item that was shown.
    after: u64,
}

/// One page of items that have ascending numbers, from 1, which stay theirs when others go. `maxResults` counts before `keep` is asked, so that a page may be empty and yet not the last.
pub(super) fn page(
    list: &str,
    query: &Map<String, Value>,
    entries: impl Iterator<Item = (u64, Value)>,
    keep: impl Fn(&Value) -> bool,
) -> Result<Value> {
    let size = query.get("maxResults").and_then(Value::as_u64).map_or(PAGE, |most| most as usize);
    let after = match query.get("nextToken").and_then(Value::as_str) {
        Some(token) => {
            let position = open(token).filter(|position| position.list == list);
            position.ok_or_else(|| ApiError::invalid("Invalid nextToken"))?.after
        }
        None => 0,
    };
    let mut rest = entries.skip_while(|(number, _)| *number <= after).peekable();
    let page: Vec<(u64, Value)> = rest.by_ref().take(size).collect();
    let last = page.last().filter(|_| rest.peek().is_some());
    let token = last.map(|(number, _)| seal(&Position { list: list.to_owned(), after: *number }));
    let items: Vec<Value> = page.into_iter().map(|(_, item)| item).filter(keep).collect();
    Ok(json!({ "items": items, "nextToken": token }))
}

fn seal(position: &Position) -> String {
    let noise = std::iter::repeat_with(|| *Uuid::new_v4().as_bytes()).flatten().take(NOISE);
    let content = json!(position).to_string();
    URL_SAFE.encode(noise.chain(content.bytes()).collect::<Vec<u8>>())
}

fn open(token: &str) -> Option<Position> {
    serde_json::from_slice(URL_SAFE.decode(token).ok()?.get(NOISE..)?).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn ask(list: &str, token: Option<&Value>) -> Result<Value> {
        let mut query = Map::from_iter([("maxResults".to_owned(), json!(2))]);
        if let Some(token) = token {
            query.insert("nextToken".into(), token.clone());
        }
        page(list, &query, (0..5).map(|at| (at + 1, json!(at))), |item| {
            item.as_u64() != Some(2) && item.as_u64() != Some(3)
        })
    }

    #[test]
    fn pages_follow_each_other_and_may_be_empty() {
        let first = ask("a", None).unwrap();
        assert_eq!(first["items"], json!([0, 1]));
        let second = ask("a", Some(&first["nextToken"])).unwrap();
        assert_eq!(second["items"], json!([]));
        let last = ask("a", Some(&second["nextToken"])).unwrap();
        assert_eq!(last, json!({ "items": [4], "nextToken": null }));
    }

    #[test]
    fn tokens_of_other_lists_and_made_up_ones_are_refused() {
        let first = ask("a", None).unwrap();
        assert!(ask("b", Some(&first["nextToken"])).is_err());
        assert!(ask("a", Some(&json!("2"))).is_err());
    }
}
