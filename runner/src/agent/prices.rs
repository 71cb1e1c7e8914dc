//! A dated price table, for gateways that do not say what an answer cost.
//!
//! ```toml
//! date = "2026-11-01"
//! source = "the provider's price list"
//!
//! [models."some/model"]      # US dollars for a million tokens
//! input = 1.25
//! cached_input = 0.125       # the same as input, if left out
//! output = 10.0
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, bail};
use jiff::civil::Date;
use sandbox_bench_core::{Spend, TokenCounts};
use serde::Deserialize;

/// Largest file, in bytes.
const MAX_FILE: u64 = 4 << 20;
/// Tokens that a price is for.
const MILLION: f64 = 1e6;

/// What models cost on a day.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceTable {
    date: String,
    source: String,
    models: BTreeMap<String, Price>,
}

/// US dollars for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Price {
    input: f64,
    cached_input: Option<f64>,
    output: f64,
}

impl PriceTable {
    /// Reads a table.
    ///
    /// # Errors
    /// The file cannot be read, has no date, or a price is not a number that money can be.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let what = || format!("price table {}", path.display());
        let size = std::fs::metadata(path).with_context(what)?.len();
        if size > MAX_FILE {
            bail!("{} has {size} bytes; the limit is {MAX_FILE}", what());
        }
        Self::parse(&std::fs::read_to_string(path).with_context(what)?).with_context(what)
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let table: Self = toml::from_str(text)?;
        let date = &table.date;
        date.parse::<Date>().with_context(|| format!("date {date:?} is not of the form YYYY-MM-DD"))?;
        for (model, price) in &table.models {
            let all = [Some(price.input), price.cached_input, Some(price.output)];
            if all.into_iter().flatten().any(|usd| !usd.is_finite() || usd < 0.0) {
                bail!("the price of {model} is not a number from 0 up");
            }
        }
        Ok(table)
    }

    /// What these tokens of `model` cost, if the table has it.
    #[must_use]
    pub fn estimate(&self, model: &str, tokens: &TokenCounts) -> Option<f64> {
        let price = self.models.get(model)?;
        let cached = tokens.cached_input.min(tokens.input);
        let fresh = tokens.input - cached;
        let usd = fresh as f64 * price.input
            + cached as f64 * price.cached_input.unwrap_or(price.input)
            + tokens.output as f64 * price.output;
        Some(usd / MILLION)
    }

    /// The table in words, for evidence.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("{}, {}", self.source, self.date)
    }
}

/// Adds up what the answers of one attempt cost.
#[derive(Debug, Clone, Default)]
pub struct Purse {
    usd: f64,
    estimated: bool,
    unknown: Option<String>,
}

impl Purse {
    /// Takes in one answer: what the gateway said of its price, else what the table makes of its tokens.
    pub fn pay(&mut self, model: &str, usd: Option<f64>, tokens: Option<&TokenCounts>, table: Option<&PriceTable>) {
        if let Some(usd) = usd {
            self.usd += usd;
            return;
        }
        let estimate = tokens.and_then(|tokens| table?.estimate(model, tokens));
        match (estimate, tokens) {
            (Some(usd), _) => {
                self.usd += usd;
                self.estimated = true;
            }
            (None, None) => self.unknown = Some("the gateway gave neither a price nor token counts".into()),
            (None, Some(_)) if table.is_some() => {
                self.unknown = Some(format!("the gateway gave no price, and the price table does not have {model}"));
            }
            (None, Some(_)) => self.unknown = Some("the gateway gave no price, and there is no price table".into()),
        }
    }

    /// What is known by now.
    #[must_use]
    pub fn spend(&self, table: Option<&PriceTable>) -> Spend {
        match (&self.unknown, table) {
            (Some(why), _) => Spend::Unknown { why: why.clone() },
            (None, Some(table)) if self.estimated => Spend::Estimated { usd: self.usd, prices: table.describe() },
            (None, _) => Spend::Measured { usd: self.usd },
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const TABLE: &str =
        "date = '2026-11-01'\nsource = 'list'\n[models.m]\ninput = 2\ncached_input = 0.5\noutput = 10\n";
    const TOKENS: TokenCounts = TokenCounts { input: 1_000_000, cached_input: 400_000, output: 100_000, reasoning: 0 };

    #[test]
    fn an_estimate_tells_cached_tokens_apart_and_names_its_table() {
        let table = PriceTable::parse(TABLE).unwrap();
        let mut purse = Purse::default();
        purse.pay("m", None, Some(&TOKENS), Some(&table));
        let usd = 0.6 * 2.0 + 0.4 * 0.5 + 0.1 * 10.0;
        assert_eq!(purse.spend(Some(&table)), Spend::Estimated { usd, prices: "list, 2026-11-01".into() });
    }

    #[test]
    fn what_the_gateway_says_wins_and_one_unknown_makes_the_sum_unknown() {
        let table = PriceTable::parse(TABLE).unwrap();
        let mut purse = Purse::default();
        purse.pay("m", Some(0.25), Some(&TOKENS), Some(&table));
        assert_eq!(purse.spend(Some(&table)), Spend::Measured { usd: 0.25 });
        purse.pay("other", None, Some(&TOKENS), Some(&table));
        assert_eq!(purse.spend(Some(&table)).usd(), None);
        purse.pay("m", Some(0.25), None, None);
        assert_eq!(purse.spend(Some(&table)).usd(), None, "later answers do not heal it");
    }

    #[test]
    fn a_table_without_date_or_with_impossible_prices_is_refused() {
        for bad in [
            "source = 'x'\n[models]",
            "date = 'yesterday'\nsource = 'x'\n[models]",
            "date = '2026-11-01'\nsource = 'x'\n[models.m]\ninput = -1\noutput = 1",
            "date = '2026-11-01'\nsource = 'x'\n[models.m]\ninput = nan\noutput = 1",
            "date = '2026-11-01'\nsource = 'x'\n[models.m]\ninput = 1",
        ] {
            assert!(PriceTable::parse(bad).is_err(), "{bad}");
        }
    }
}
