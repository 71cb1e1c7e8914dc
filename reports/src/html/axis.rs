//! An axis of times: where a value is drawn, and which values are marked.

use maud::{Markup, html};

use crate::render::duration;

/// From this ratio of the greatest to the least value on, an axis is logarithmic.
const WIDE: f64 = 30.0;

/// Maps microseconds to a coordinate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axis {
    least: f64,
    greatest: f64,
    logarithmic: bool,
    from: f64,
    to: f64,
}

impl Axis {
    /// Over these values, drawn between two coordinates. It is linear and begins at 0, or logarithmic where the values
    /// spread wide.
    pub(super) fn over(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (mut least, mut greatest) = (f64::INFINITY, 1.0f64);
        for value in values.filter(|value| value.is_finite() && *value > 0.0) {
            // Nothing is measured more finely than to a microsecond.
            (least, greatest) = (least.min(value.max(1.0)), greatest.max(value));
        }
        let logarithmic = greatest / least > WIDE;
        let least = if logarithmic { least } else { 0.0 };
        Self { least, greatest, logarithmic, from, to }
    }

    /// Always from 0, for lengths of bars.
    pub(super) fn linear(greatest: f64, from: f64, to: f64) -> Self {
        Self { least: 0.0, greatest: greatest.max(1e-12), logarithmic: false, from, to }
    }

    pub(super) fn at(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value.max(self.least) / self.least).ln() / (self.greatest / self.least).ln()
        } else {
            value / self.greatest
        };
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// Round values within the axis, at most about six.
    pub(super) fn ticks(&self) -> Vec<f64> {
        if !self.logarithmic {
            let step = round_up(self.greatest / 5.0);
            let marks = (self.greatest / step * (1.0 + 1e-9)) as u32;
            return (0..=marks).map(|n| f64::from(n) * step).collect();
        }
        let (low, high) = (self.least.log10().floor() as i32, self.greatest.log10().ceil() as i32);
        let factors: &[f64] = if high - low > 3 { &[1.0] } else { &[1.0, 3.0] };
        let all = (low..=high).flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)));
        all.filter(|tick| (self.least..=self.greatest).contains(tick)).collect()
    }

    /// Vertical lines with the time beneath, between the heights `top` and `bottom`.
    pub(super) fn times(&self, top: f64, bottom: f64) -> Markup {
        html! {
            @for tick in self.ticks() {
                line .grid x1=(px(self.at(tick))) x2=(px(self.at(tick))) y1=(px(top)) y2=(px(bottom)) {}
                text .tick x=(px(self.at(tick))) y=(px(bottom + 16.0)) text-anchor="middle" { (time(tick)) }
            }
        }
    }
}

/// The least of 1, 2, 5 times a power of ten that is not below `value`.
fn round_up(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|round| *round >= value * (1.0 - 1e-9))
        .unwrap_or(value)
}

/// A coordinate, the same on every machine.
pub(super) fn px(value: f64) -> String {
    format!("{value:.1}")
}

/// A time of a tick, without digits that say nothing.
pub(super) fn time(us: f64) -> String {
    if us == 0.0 {
        return "0".to_owned();
    }
    let text = duration(us.round() as u64);
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ticks_are_round_and_wide_spreads_are_logarithmic() {
        assert_eq!(Axis::over([1e6, 4.2e6].into_iter(), 0.0, 100.0).ticks(), [0.0, 1e6, 2e6, 3e6, 4e6]);
        assert_eq!(Axis::over([1e3, 1e6].into_iter(), 0.0, 100.0).ticks(), [1e3, 3e3, 1e4, 3e4, 1e5, 3e5, 1e6]);
        assert_eq!(time(1_500_000.0), "1.5 s");
        assert_eq!(time(2_000_000.0), "2 s");
    }

    proptest! {
        #[test]
        fn everything_lies_within_the_axis(values in proptest::collection::vec(any::<f64>(), 0..9), one in any::<u32>()) {
            let axis = Axis::over(values.into_iter(), 10.0, 90.0);
            prop_assert!((10.0..=90.0).contains(&axis.at(f64::from(one))));
            prop_assert!(axis.ticks().len() < 2000);
        }
    }
}
