//! Money for people: two digits that count, in US dollars.

use crate::cost::{Bound, CellCost};

/// An amount as text, such as `$12.30`, `$0.0049`, `$0`.
#[must_use]
pub fn usd(amount: f64) -> String {
    let digits = match amount.abs() {
        0.0 => return "$0".to_owned(),
        // The position of the second digit that counts.
        small if small < 1.0 => (1.0 - small.log10().floor()).clamp(2.0, 12.0) as usize,
        _ => 2,
    };
    format!("${amount:.digits$}")
}

/// The cost of an accepted trial: `≈` marks an estimate, `≥` and `≤` one that is a bound, `unknown` is not zero.
#[must_use]
pub fn cost(cost: &CellCost) -> String {
    let sign = match cost.bound {
        Some(Bound::Lower) => "≥ ",
        Some(Bound::Upper) => "≤ ",
        None if cost.estimated > 0 => "≈ ",
        None => "",
    };
    match cost.per_success_usd {
        Some(amount) => format!("{sign}{}", usd(amount)),
        None if cost.unknown > 0 => "unknown".to_owned(),
        None => super::NOTHING_TO_TELL.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_digits_count() {
        for (amount, text) in [
            (0.0, "$0"),
            (0.000_000_6, "$0.00000060"),
            (0.004_872, "$0.0049"),
            (0.05, "$0.050"),
            (0.123, "$0.12"),
            (12.3, "$12.30"),
            (1234.567, "$1234.57"),
        ] {
            assert_eq!(usd(amount), text);
        }
    }

    #[test]
    fn how_a_cost_is_known_shows() {
        let of = |bound, estimated, unknown, per_success_usd| {
            cost(&CellCost { bound, estimated, unknown, per_success_usd, ..CellCost::default() })
        };
        assert_eq!(of(None, 0, 0, Some(0.5)), "$0.50");
        assert_eq!(of(None, 1, 0, Some(0.5)), "≈ $0.50");
        assert_eq!(of(Some(Bound::Lower), 1, 0, Some(0.5)), "≥ $0.50");
        assert_eq!(of(Some(Bound::Upper), 1, 0, Some(0.5)), "≤ $0.50");
        assert_eq!(of(None, 1, 1, None), "unknown");
        assert_eq!(of(None, 1, 0, None), "-");
    }
}
