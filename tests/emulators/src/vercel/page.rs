//! Lists come in pages.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::error::{ApiError, Result};
use super::query::Query;

/// Items of a page if the request does not say.
const DEFAULT_LIMIT: usize = 20;
const LONGEST: usize = 100;

/// One page of a sorted list.
pub(super) struct Page<T> {
    pub(super) items: Vec<T>,
    next: Option<String>,
}

impl<T> Page<T> {
    /// Sorts by key and takes the page that the query's `limit`, `cursor` and `sortOrder` name. Keys must be unique.
    ///
    /// A cursor is the key of the last item that was seen, so items that come or go meanwhile move nothing.
    pub(super) fn of(mut items: Vec<T>, key: impl Fn(&T) -> String, query: &Query) -> Result<Page<T>> {
        let limit = match query.get("limit").map(str::parse) {
            None => DEFAULT_LIMIT,
            Some(Ok(limit)) if (1..=LONGEST).contains(&limit) => limit,
            Some(_) => {
                return Err(ApiError::bad_request(format!("Invalid request: `limit` should be 1 to {LONGEST}.")));
            }
        };
        let ascending = match query.get("sortOrder") {
            None | Some("desc") => false,
            Some("asc") => true,
            Some(_) => return Err(ApiError::bad_request("Invalid request: `sortOrder` should be `asc` or `desc`.")),
        };
        items.sort_by_cached_key(&key);
        if !ascending {
            items.reverse();
        }
        if let Some(cursor) = query.get("cursor") {
            let seen = URL_SAFE_NO_PAD.decode(cursor).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            let seen = seen.ok_or_else(|| ApiError::bad_request("Invalid request: `cursor` is not one of ours."))?;
            items.retain(|item| if ascending { key(item) > seen } else { key(item) < seen });
        }
        let more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| more).map(|last| URL_SAFE_NO_PAD.encode(key(last)));
        Ok(Page { items, next })
    }

    /// `pagination` on the wire.
    pub(super) fn pagination(&self) -> Value {
        json!({ "count": self.items.len(), "next": self.next })
    }
}

/// A time as a key: in the order of times, unique by the id.
pub(super) fn time_key(ms: u64, id: &str) -> String {
    format!("{ms:020} {id}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn query(text: &str) -> Query {
        Query::of(&format!("/?{text}").parse().unwrap()).unwrap()
    }

    proptest! {
        #[test]
        fn following_the_cursor_shows_every_item_once(
            names in proptest::collection::btree_set("[a-z]{1,4}", 0..30), limit in 1usize..7, ascending: bool,
        ) {
            let names: Vec<String> = names.into_iter().collect();
            let order = if ascending { "asc" } else { "desc" };
            let (mut seen, mut cursor) = (Vec::new(), None::<String>);
            loop {
                let after = cursor.iter().map(|cursor| format!("&cursor={cursor}")).collect::<String>();
                let query = query(&format!("limit={limit}&sortOrder={order}{after}"));
                let page = Page::of(names.clone(), String::clone, &query).unwrap();
                prop_assert!(page.items.len() <= limit);
                prop_assert_eq!(&page.pagination()["count"], page.items.len());
                seen.extend(page.items);
                match page.next {
                    Some(next) => cursor = Some(next),
                    None => break,
                }
            }
            if !ascending {
                seen.reverse();
            }
            prop_assert_eq!(seen, names);
        }
    }

    #[test]
    fn cursors_of_others_are_refused() {
        let page = Page::of(vec!["a".to_owned()], String::clone, &query("cursor=%21"));
        assert_eq!(page.err().unwrap().code, "bad_request");
    }
}
