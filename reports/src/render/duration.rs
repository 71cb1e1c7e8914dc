//! Durations for people: three digits or so, in the unit that fits.

/// A duration in microseconds as text, such as `340 µs`, `12 ms`, `1.34 s`, `2 min 05 s`.
#[must_use]
pub fn duration(us: u64) -> String {
    // The bounds are where rounding to the shown digits would reach the next form.
    #[allow(clippy::cast_precision_loss)]
    let (ms, s) = (us as f64 / 1e3, us as f64 / 1e6);
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..9_950 => format!("{ms:.1} ms"),
        9_950..999_500 => format!("{ms:.0} ms"),
        999_500..9_995_000 => format!("{s:.2} s"),
        9_995_000..59_950_000 => format!("{s:.1} s"),
        59_950_000..3_599_500_000 => {
            let seconds = (us + 500_000) / 1_000_000;
            format!("{} min {:02} s", seconds / 60, seconds % 60)
        }
        _ => {
            let minutes = us / 60_000_000 + u64::from(us % 60_000_000 >= 30_000_000);
            format!("{} h {:02} min", minutes / 60, minutes % 60)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_form_and_where_it_changes() {
        for (us, text) in [
            (0, "0 µs"),
            (999, "999 µs"),
            (1_000, "1.0 ms"),
            (9_949, "9.9 ms"),
            (9_950, "10 ms"),
            (12_300, "12 ms"),
            (999_499, "999 ms"),
            (999_500, "1.00 s"),
            (1_340_000, "1.34 s"),
            (9_994_999, "9.99 s"),
            (9_995_000, "10.0 s"),
            (59_949_999, "59.9 s"),
            (59_950_000, "1 min 00 s"),
            (125_000_000, "2 min 05 s"),
            (3_599_499_999, "59 min 59 s"),
            (3_599_500_000, "1 h 00 min"),
            (7_380_000_000, "2 h 03 min"),
        ] {
            assert_eq!(duration(us), text);
        }
    }

    proptest! {
        #[test]
        fn any_duration_has_a_short_text(us in any::<u64>()) {
            prop_assert!(duration(us).chars().count() <= 20);
        }
    }
}
