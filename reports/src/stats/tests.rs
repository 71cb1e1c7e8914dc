#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use proptest::prelude::*;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use statrs::distribution::{ContinuousCDF, Normal};

use super::proportion::{difference, wilson};
use super::*;

/// The values that `make.py` computed with SciPy, one object for each case.
fn cases(name: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(include_str!("../../tests/scipy/values.json")).unwrap();
    let cases = all[name].as_array().unwrap().clone();
    assert!(!cases.is_empty());
    cases
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(number).collect()
}

fn close(found: f64, expected: f64, case: &Value) {
    assert!((found - expected).abs() <= 1e-9 * expected.abs().max(1.0), "{found} is not {expected}: {case}");
}

#[test]
fn quantiles_are_those_of_numpy() {
    for case in cases("quantiles") {
        let mut values = numbers(&case["values"]);
        values.sort_by(f64::total_cmp);
        let p = number(&case["p"]);
        close(quantile(&values, p, Method::R7).unwrap(), number(&case["r7"]), &case);
        close(quantile(&values, p, Method::NearestRank).unwrap(), number(&case["nearest_rank"]), &case);
        let sample = Sample::new(values.iter().enumerate().map(|(unit, value)| (Time::seen(*value), unit)));
        close(sample.quantile(p, &vec![1; values.len()], false), number(&case["r7"]), &case);
    }
    assert_eq!(quantile(&[], 0.5, Method::R7), None);
    assert_eq!(quantile(&[], 0.5, Method::NearestRank), None);
}

#[test]
fn intervals_of_shares_are_those_of_scipy_and_of_newcombes_table() {
    for case in cases("wilson") {
        let (hits, n) = (case["hits"].as_u64().unwrap(), case["n"].as_u64().unwrap());
        let interval = wilson(hits, n, number(&case["confidence"])).unwrap();
        close(interval.low.unwrap(), number(&case["low"]), &case);
        close(interval.high.unwrap(), number(&case["high"]), &case);
    }
    assert_eq!(wilson(0, 0, 0.95), None);
    for case in cases("newcombe") {
        let pair = |name: &str| (case[name][0].as_u64().unwrap(), case[name][1].as_u64().unwrap());
        let interval = difference(pair("hits"), pair("n"), 0.95).unwrap();
        let printed = |end: Option<f64>| (end.unwrap() * 10_000.0).round() / 10_000.0;
        assert_eq!((printed(interval.low), printed(interval.high)), (number(&case["low"]), number(&case["high"])));
    }
}

#[test]
fn the_rank_test_is_that_of_scipy_exact_and_approximate() {
    for case in cases("mann_whitney") {
        let (a, b) = (numbers(&case["a"]), numbers(&case["b"]));
        let test = mann_whitney(&[(a.clone(), b.clone())]).unwrap();
        assert!(test.exact);
        close(test.p, number(&case["exact"]), &case);
        close(test.second_greater, number(&case["second_greater"]), &case);
        close(mann_whitney(&[(b, a)]).unwrap().p, number(&case["exact"]), &case);
    }
    for case in cases("tied") {
        let test = mann_whitney(&[(numbers(&case["a"]), numbers(&case["b"]))]).unwrap();
        close(test.p, number(&case["p"]), &case);
    }
    assert_eq!(mann_whitney(&[(vec![1.0], vec![])]), None);
}

#[test]
fn beyond_what_can_be_counted_the_normal_distribution_takes_over() {
    for case in cases("large") {
        let n = case["n"].as_u64().unwrap();
        let a: Vec<f64> = (0..n).map(|i| (7 * i * i % 1009) as f64).collect();
        let b: Vec<f64> = (0..n).map(|i| (5 * i * i % 1013 + 20) as f64).collect();
        let test = mann_whitney(&[(a, b)]).unwrap();
        assert!(!test.exact && test.floor < test.p);
        close(test.p, number(&case["p"]), &case);
    }
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let mut sample = |shift: f64| (0..20).map(|_| rng.random::<f64>() + shift).collect::<Vec<f64>>();
    let few: Vec<_> = (0..3).map(|_| (sample(0.0), sample(0.08))).collect();
    let many: Vec<_> = few.iter().cloned().chain((0..300).map(|_| (vec![1.0], vec![1.0]))).collect();
    let (alone, among) = (mann_whitney(&few).unwrap(), mann_whitney(&many).unwrap());
    assert!(alone.exact && (!among.exact || (alone.p - among.p).abs() < 1e-9));
    assert!((alone.p - among.p).abs() < 0.01, "tasks without any difference change nothing: {alone:?} {among:?}");
}

#[test]
fn small_samples_state_the_least_p_that_they_can_give() {
    // Two samples of 3: 20 ways to choose, of which 2 are the most extreme.
    let apart = mann_whitney(&[(vec![1.0, 2.0, 3.0], vec![4.0, 5.0, 6.0])]).unwrap();
    assert!((apart.floor - 0.1).abs() < 1e-12 && (apart.p - 0.1).abs() < 1e-12, "{apart:?}");
    assert!((apart.second_greater - 1.0).abs() < 1e-12);
    // Two tasks: the choices multiply.
    let twice = mann_whitney(&vec![(vec![1.0, 2.0, 3.0], vec![4.0, 5.0, 6.0]); 2]).unwrap();
    assert!((twice.p - 2.0 / 400.0).abs() < 1e-12, "{twice:?}");
    let alike = mann_whitney(&[(vec![7.0; 6], vec![7.0; 6])]).unwrap();
    assert_eq!((alike.p, alike.floor, alike.second_greater), (1.0, 1.0, 0.5));
}

#[test]
fn holm_variances_and_survival_are_those_of_scipy() {
    for case in cases("holm") {
        for (found, expected) in holm(&numbers(&case["p"])).into_iter().zip(numbers(&case["adjusted"])) {
            close(found, expected, &case);
        }
    }
    for case in cases("variance") {
        let groups: Vec<Vec<f64>> = case["groups"].as_array().unwrap().iter().map(numbers).collect();
        let components = Components::of(&groups).unwrap();
        close(components.within, number(&case["within"]), &case);
        close(components.between, number(&case["between"]), &case);
    }
    assert_eq!(Components::of(&[vec![1.0], vec![2.0]]), None, "without repeats there is no telling");
    for case in cases("survival") {
        let times: Vec<Time> = numbers(&case["times"])
            .into_iter()
            .zip(case["censored"].as_array().unwrap())
            .map(|(value, censored)| Time { value, censored: censored.as_bool().unwrap() })
            .collect();
        let curve = KaplanMeier::of(&times, 0.95);
        let steps = case["steps"].as_array().unwrap();
        assert_eq!((curve.steps.len(), curve.n), (steps.len(), times.len()));
        for (step, expected) in curve.steps.iter().zip(steps) {
            assert_eq!(step.time, number(&expected["time"]));
            close(step.survival, number(&expected["survival"]), &case);
            let Some((low, high)) = step.interval else {
                assert!(expected["interval"].is_null(), "{expected}");
                continue;
            };
            close(low, number(&expected["interval"][0]), expected);
            close(high, number(&expected["interval"][1]), expected);
        }
        let sample = Sample::new(times.iter().enumerate().map(|(unit, time)| (*time, unit)));
        for p in [0.25, 0.5, 0.9, 0.99] {
            let weighted = sample.quantile(p, &vec![1; times.len()], true);
            assert_eq!(weighted.is_finite().then_some(weighted), curve.quantile(p));
        }
    }
}

#[test]
fn timeouts_make_times_longer_and_never_shorter() {
    let done = [10.0, 11.0, 12.0, 13.0].map(Time::seen);
    let with_timeouts: Vec<Time> = done.iter().copied().chain([Time::at_least(60.0); 6]).collect();
    let curve = KaplanMeier::of(&with_timeouts, 0.95);
    assert_eq!((curve.quantile(0.4), curve.quantile(0.5)), (Some(13.0), None), "most never ended");
    assert_eq!(curve.censored, 6);
}

fn cell(tasks: usize, replicates: usize, base: f64) -> BTreeMap<usize, Vec<Time>> {
    let time = |task: usize, replicate: usize| Time::seen(base + 100.0 * task as f64 + replicate as f64);
    (0..tasks).map(|task| (task, (0..replicates).map(|replicate| time(task, replicate)).collect())).collect()
}

#[test]
fn no_order_is_claimed_below_six_replicates() {
    let refused = rank(&[cell(9, 5, 0.0), cell(9, 6, 50.0)]).unwrap_err();
    assert_eq!(refused, TooFew { replicates: 5 });
    assert_eq!(refused.to_string(), "a task has 5 of the 6 trials that this needs");
    assert_eq!(rank(&[cell(1, 9, 0.0), BTreeMap::new()]).unwrap_err(), TooFew { replicates: 0 });

    let places = rank(&[cell(3, 6, 50.0), cell(3, 6, 0.0), cell(3, 6, 0.0)]).unwrap();
    let order: Vec<usize> = places.iter().map(|place| place.cell).collect();
    assert_eq!(order, [1, 2, 0]);
    assert_eq!(places[0].p, None);
    assert!(places[1].p.unwrap() > 0.99 && places[2].p.unwrap() < 0.001, "{places:?}");
}

#[test]
fn pairs_are_those_of_the_common_tasks() {
    let (mut a, b) = (cell(3, 6, 100.0), cell(2, 6, 110.0));
    a.get_mut(&1).unwrap().extend([Time::at_least(1000.0); 12]);
    let pairs = paired(&a, &b);
    assert_eq!(pairs.len(), 2);
    assert_eq!((pairs[0].a, pairs[0].b, pairs[0].n), (102.5, 112.5, (6, 6)));
    assert!((pairs[0].change() - 10.0 / 102.5).abs() < 1e-12);
    assert!(pairs[1].a.is_infinite(), "most of its trials never ended");
}

/// Coverage within sampling error: of `rounds` intervals, as many hold the truth as was stated.
#[track_caller]
fn covers(hits: u32, rounds: u32, stated: f64) {
    let (share, error) = (f64::from(hits) / f64::from(rounds), (stated * (1.0 - stated) / f64::from(rounds)).sqrt());
    assert!((share - stated).abs() <= 3.0 * error, "{share} instead of {stated} ± {:.3}", 3.0 * error);
}

#[test]
fn intervals_cover_what_they_state() {
    let normal = Normal::standard();
    let plan = Bootstrap { resamples: 400, ..Bootstrap::default() };
    let rounds = 400;
    for (tasks, replicates) in [(8, 6), (20, 3)] {
        let mut rng = ChaCha8Rng::seed_from_u64(8);
        let mut draw = || normal.inverse_cdf(rng.random_range(1e-9..1.0));
        let mut hits = 0;
        for seed in 0..rounds {
            // Tasks differ, and trials of a task differ: the median of all is exp(3).
            let times = (0..tasks).flat_map(|task| {
                let middle = 3.0 + 0.5 * draw();
                (0..replicates).map(|_| (Time::seen((middle + 0.3 * draw()).exp()), task)).collect::<Vec<_>>()
            });
            let sample = Sample::new(times);
            let plan = Bootstrap { seed: seed.into(), ..plan };
            let (_, interval) = plan.interval(&[tasks], |weights| sample.quantile(0.5, weights, false)).unwrap();
            hits += u32::from(interval.contains(3.0f64.exp()));
        }
        covers(hits, rounds, 0.95);
    }
}

#[test]
fn permuted_labels_are_found_different_as_often_as_stated() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let rounds = 2000;
    let mut found = 0;
    for _ in 0..rounds {
        let strata: Vec<_> = (1..=3)
            .map(|task| {
                let mut all: Vec<f64> = (0..14).map(|n| f64::from(n * n * task)).collect();
                all.shuffle(&mut rng);
                let second = all.split_off(7);
                (all, second)
            })
            .collect();
        found += u32::from(mann_whitney(&strata).unwrap().p <= 0.05);
    }
    let share = f64::from(found) / f64::from(rounds);
    let error = (0.05f64 * 0.95 / f64::from(rounds)).sqrt();
    assert!((0.05 - 4.0 * error..=0.05 + 3.0 * error).contains(&share), "{share}");
}

fn times() -> impl Strategy<Value = Vec<Time>> {
    let time = (0u32..50, prop::bool::weighted(0.2));
    prop::collection::vec(time.prop_map(|(value, censored)| Time { value: value.into(), censored }), 1..40)
}

proptest! {
    #[test]
    fn quantiles_lie_within_the_values_and_grow_with_p(mut values in prop::collection::vec(-1e9f64..1e9, 1..60), p in 0.0f64..=1.0) {
        values.sort_by(f64::total_cmp);
        for method in [Method::R7, Method::NearestRank] {
            let value = quantile(&values, p, method).unwrap();
            prop_assert!((values[0]..=values[values.len() - 1]).contains(&value));
            prop_assert!(quantile(&values, p / 2.0, method).unwrap() <= value);
        }
    }

    #[test]
    fn the_distribution_function_rises_from_none_to_all(values in prop::collection::vec(-50i32..50, 1..60), x in -60f64..60.0) {
        let ecdf = Ecdf::of(values.iter().map(|value| f64::from(*value)));
        prop_assert_eq!(ecdf.n(), values.len());
        prop_assert!(ecdf.steps().is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1));
        prop_assert_eq!((ecdf.at(-61.0), ecdf.at(60.0)), (0.0, 1.0));
        let share = values.iter().filter(|value| f64::from(**value) <= x).count() as f64 / values.len() as f64;
        prop_assert!((ecdf.at(x) - share).abs() < 1e-12);
    }

    #[test]
    fn survival_falls_and_does_not_depend_on_the_order(times in times(), seed in any::<u64>()) {
        let curve = KaplanMeier::of(&times, 0.95);
        prop_assert!(curve.steps.is_sorted_by(|a, b| a.time < b.time && a.survival > b.survival));
        for step in &curve.steps {
            prop_assert!(step.interval.is_none_or(|(low, high)| low <= step.survival && step.survival <= high));
        }
        let mut shuffled = times;
        shuffled.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        prop_assert_eq!(KaplanMeier::of(&shuffled, 0.95), curve);
    }

    #[test]
    fn a_weight_counts_as_that_many_copies(times in times(), seed in any::<u64>(), p in 0.01f64..0.99) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let weights: Vec<u32> = times.iter().map(|_| rng.random_range(0..4)).collect();
        let weighted = Sample::new(times.iter().enumerate().map(|(unit, time)| (*time, unit)));
        let copies = times.iter().zip(&weights).flat_map(|(time, n)| std::iter::repeat_n((*time, 0), *n as usize));
        let copied = Sample::new(copies);
        for censoring in [false, true] {
            let (a, b) = (weighted.quantile(p, &weights, censoring), copied.quantile(p, &[1], censoring));
            prop_assert!(a == b || (a - b).abs() < 1e-6 || (a.is_nan() && b.is_nan()), "{} {}", a, b);
        }
    }

    #[test]
    fn an_interval_holds_its_estimate_and_is_the_same_each_time(times in times(), tasks in 2usize..9, seed in any::<u64>()) {
        let sample = Sample::new(times.iter().enumerate().map(|(n, time)| (*time, n % tasks)));
        let plan = Bootstrap { resamples: 50, seed, ..Bootstrap::default() };
        let interval = || plan.interval(&[tasks], |weights| sample.quantile(0.5, weights, sample.has_censored()));
        let first = interval();
        prop_assert_eq!(first, interval());
        if let Some((estimate, interval)) = first {
            prop_assert!(interval.contains(estimate) || estimate.is_infinite());
        }
        prop_assert!(plan.interval(&[tasks, 1], |_| 1.0).is_none(), "of one unit nothing can be said");
    }

    /// Resamples that are looked at together, a part of the times at a time, give what each gives for itself.
    #[test]
    fn a_median_that_passes_by_is_that_of_the_whole_sample(times in times(), tasks in 1usize..9) {
        let mut sizes = vec![0; tasks];
        let mut timed: Vec<Timed> = Vec::new();
        for (n, time) in times.iter().enumerate() {
            let task = n % tasks;
            timed.push(Timed { time: *time, task, trial: sizes[task] });
            sizes[task] += 1;
        }
        timed.sort_by(|a, b| a.time.value.total_cmp(&b.time.value));
        let found = resampled_median(&sizes, || timed.iter().copied(), true);
        let whole = Units::of(&[sizes.clone()]).and_then(|units| {
            let sample = Sample::new(timed.iter().map(|t| (t.time, units.number(0, t.task, t.trial))));
            Bootstrap::of(times.len()).interval(&units.strata, |weights| sample.quantile(0.5, weights, true))
        });
        prop_assert_eq!(found.map(|found| (found.median, found.interval)), whole);
        let plain = Sample::new(timed.iter().map(|t| (t.time, 0))).quantile(0.5, &[1], true);
        let passing = median(&sizes, || timed.iter().copied(), true);
        prop_assert!(passing == plain || (passing.is_nan() && plain.is_nan()));
    }

    #[test]
    fn the_rank_test_is_symmetric_and_blind_to_order_and_scale(
        a in prop::collection::vec(0i32..30, 1..12), b in prop::collection::vec(0i32..30, 1..12), seed in any::<u64>()
    ) {
        let of = |a: &[i32], b: &[i32], scale: f64| {
            let values = |values: &[i32]| values.iter().map(|v| f64::from(*v) * scale).collect::<Vec<f64>>();
            mann_whitney(&[(values(a), values(b))]).unwrap()
        };
        let test = of(&a, &b, 1.0);
        prop_assert!(test.floor <= test.p + 1e-9 && (0.0..=1.0).contains(&test.p));
        let (mut shuffled, other) = (a.clone(), of(&b, &a, 1.0));
        shuffled.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        prop_assert!((of(&shuffled, &b, 1e3).p - test.p).abs() < 1e-9);
        prop_assert!((other.p - test.p).abs() < 1e-9 && (other.second_greater + test.second_greater - 1.0).abs() < 1e-9);
    }

    #[test]
    fn shares_lie_within_their_interval(hits in 0u64..500, more in 0u64..500) {
        prop_assume!(hits + more > 0);
        let share = hits as f64 / (hits + more) as f64;
        let (narrow, wide) = (wilson(hits, hits + more, 0.9).unwrap(), wilson(hits, hits + more, 0.99).unwrap());
        prop_assert!(narrow.contains(share) && wide.low <= narrow.low && wide.high >= narrow.high);
    }

    #[test]
    fn holm_makes_no_p_smaller_and_keeps_their_order(p in prop::collection::vec(0.0f64..=1.0, 0..20)) {
        let adjusted = holm(&p);
        for (i, (raw, after)) in p.iter().zip(&adjusted).enumerate() {
            prop_assert!(after >= raw && *after <= 1.0);
            prop_assert!(p.iter().zip(&adjusted).skip(i).all(|(q, b)| (raw <= q) == (after <= b) || after == b));
        }
    }
}
