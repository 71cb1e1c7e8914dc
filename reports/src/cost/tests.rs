#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use sandbox_bench_core::evidence::{Attempt, Cleanup};
use sandbox_bench_core::{Condition, FailureClass, Observation, Phase, PhaseSpan, Resources};

use super::*;
use crate::samples;

/// An attempt on `backend` that takes `elapsed_us`, of which the first second is the environment's.
fn attempt(backend: &str, elapsed_us: u64, cpus: f64, memory_mb: u64) -> Attempt {
    let span = |phase, start_us, duration_us| PhaseSpan { phase, start_us, duration_us, guest_us: None, ok: true };
    let mut attempt = samples::attempt(backend, Condition::Cold, 0);
    attempt.total_us = elapsed_us;
    attempt.phases = vec![
        span(Phase::Environment, 0, 1_000_000),
        span(Phase::Create, 1_000_000, 500_000),
        span(Phase::Destroy, 1_500_000, elapsed_us - 1_500_000),
    ];
    attempt.requested = Resources { cpus: Some(cpus), memory_mb: Some(memory_mb), ..Resources::default() };
    attempt.observation = None;
    attempt
}

fn with(mut attempt: Attempt, facts: &[(&str, &str)]) -> Attempt {
    let evidence = facts.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    attempt.observation = Some(Observation { cost_evidence: evidence, ..Observation::default() });
    attempt
}

fn list() -> RateCard {
    RateCard::named(None).unwrap()
}

#[track_caller]
fn costs(attempt: &Attempt, card: &RateCard, expected: f64) {
    let usd = price(attempt, card).unwrap().usd().unwrap();
    assert!((usd - expected).abs() <= 1e-9 * expected, "{usd} is not {expected}");
}

#[test]
fn every_backend_has_a_dated_entry() {
    let card = list();
    let names: Vec<&str> = card.backend.keys().map(String::as_str).collect();
    assert_eq!(names, ["aws-microvm", "daytona", "docker", "local", "modal", "polyaxon", "vercel"]);
    for (name, rates) in &card.backend {
        assert!(rates.date.parse::<jiff::civil::Date>().is_ok() && !rates.source.is_empty(), "{name}");
        assert!(rates.date <= card.date || rates.unpriced.is_some(), "{name} is newer than the card");
        assert_eq!(rates.unpriced.is_some(), rates.cpu.is_none(), "{name}");
    }
}

#[test]
fn what_is_not_told_of_a_suspension_makes_a_lower_bound() {
    let card = list();
    let bound = |condition, backend: &str, facts: &[(&str, &str)]| {
        let mut attempt = with(attempt(backend, 61_200_000, 2.0, 4096), facts);
        attempt.trial.condition = condition;
        let Some(Cost::Estimated { bound, why, .. }) = price(&attempt, &card) else { panic!("no estimate") };
        (bound, why.join("; "))
    };
    let told = [("running_seconds", "10.0"), ("snapshot_bytes", "1000000000")];
    let (bounded, why) = bound(Condition::Resumed, "aws-microvm", &told);
    assert!(bounded == Some(Bound::Lower) && why.contains("memory that was written"), "{why}");
    assert!(!why.contains("before the resumption"), "{why}");
    assert!(!bound(Condition::Cold, "aws-microvm", &told).1.contains("memory that was written"));
    let (bounded, why) = bound(Condition::Resumed, "daytona", &[]);
    assert!(bounded == Some(Bound::Lower) && why.contains("before the resumption"), "{why}");
}

#[test]
fn list_prices_of_a_minute_on_each_vendor() {
    let card = list();
    // 60.2 seconds of life: 61 billed by the second; 2 vCPUs and 4 GiB.
    let minute = |backend: &str| attempt(backend, 61_200_000, 2.0, 4096);
    costs(&minute("daytona"), &card, 61.0 * (2.0 * 0.000_014 + 4.0 * 0.000_004_5));
    costs(&minute("modal"), &card, 61.0 * (0.000_039_42 + 4.0 * 0.000_006_72));
    // vCPUs follow from the memory: half as many as GiB.
    costs(&minute("aws-microvm"), &card, 61.0 * (2.0 * 0.000_027_694_4 + 4.0 * 0.000_003_666_7));
    let vercel = 60.2 / 3600.0 * (2.0 * 0.128 + 4.0 * 0.0212) + 0.000_000_6;
    costs(&minute("vercel"), &card, vercel);

    let mut large = minute("daytona");
    large.requested.disk_mb = Some(8 * 1024);
    costs(&large, &card, 61.0 * (2.0 * 0.000_014 + 4.0 * 0.000_004_5 + 3.0 * 0.000_000_03));
}

#[test]
fn what_the_backend_counted_goes_before_what_was_reserved() {
    let card = list();
    let short = attempt("vercel", 11_000_000, 2.0, 4096);
    let counted = with(short.clone(), &[(facts::BILLED_VCPU_SECONDS, "1.8"), (facts::EGRESS_BYTES, "2000000000")]);
    // Memory has a minimum of one minute.
    let expected = 1.8 / 3600.0 * 0.128 + 4.0 * 60.0 / 3600.0 * 0.0212 + 0.000_000_6 + 2.0 * 0.15;
    costs(&counted, &card, expected);
    assert!(matches!(price(&counted, &card), Some(Cost::Estimated { bound: None, .. })));
    // CPU too much, egress too little: on no side.
    let Some(Cost::Estimated { bound: None, why, .. }) = price(&short, &card) else { panic!("no estimate") };
    assert_eq!(why.len(), 2, "{why:?}");

    let told = with(short, &[(facts::COST_USD, "0.00123")]);
    assert_eq!(price(&told, &card), Some(Cost::Measured { usd: 0.001_23 }));
    let modal = price(&attempt("modal", 11_000_000, 2.0, 4096), &card);
    assert!(matches!(modal, Some(Cost::Estimated { bound: Some(Bound::Lower), .. })), "{modal:?}");
    let running = with(attempt("daytona", 11_000_000, 2.0, 4096), &[(facts::RUNNING_SECONDS, "7.5")]);
    costs(&running, &card, 8.0 * (2.0 * 0.000_014 + 4.0 * 0.000_004_5));
    let nonsense = with(attempt("daytona", 11_000_000, 2.0, 4096), &[(facts::COST_USD, "-1")]);
    assert!(matches!(price(&nonsense, &card), Some(Cost::Estimated { .. })));
}

#[test]
fn missing_is_unknown_and_never_zero() {
    let card = list();
    let why = |attempt: &Attempt| match price(attempt, &card) {
        Some(Cost::Unknown { why }) => why,
        other => panic!("{other:?}"),
    };
    assert!(why(&attempt("docker", 5_000_000, 1.0, 512)).contains("machine of your own"));
    assert!(why(&attempt("elsewhere", 5_000_000, 1.0, 512)).contains("no prices of elsewhere"));
    let mut failed = samples::failed(attempt("daytona", 5_000_000, 1.0, 512), FailureClass::Startup);
    failed.sandbox = None;
    failed.phases[1].ok = false;
    assert!(why(&failed).contains("did not come to be"));
    let unavailable = samples::failed(attempt("daytona", 5_000_000, 1.0, 512), FailureClass::Unavailable);
    assert_eq!(price(&unavailable, &card), None, "nothing was asked of the backend");

    let bare = RateCard::parse("test", "name = 'x'\ndate = '2026-01-01'\n[backend.local]\ndate = '2026-01-01'\nsource = 'x'\ncpu = { usd = 1, per = 'vcpu_hour' }").unwrap();
    let mut unsized_ = attempt("local", 5_000_000, 1.0, 512);
    unsized_.requested = Resources::default();
    assert!(matches!(price(&unsized_, &bare), Some(Cost::Unknown { why }) if why.contains("vCPUs")));
}

#[test]
fn a_sandbox_that_may_live_on_costs_at_least_so_much() {
    let card = list();
    let mut attempt = attempt("daytona", 5_000_000, 1.0, 1024);
    assert!(matches!(price(&attempt, &card), Some(Cost::Estimated { bound: None, .. })));
    for cleanup in [Cleanup::Unconfirmed { why: "no answer".into() }, Cleanup::Kept] {
        attempt.cleanup = cleanup;
        assert!(matches!(price(&attempt, &card), Some(Cost::Estimated { bound: Some(Bound::Lower), .. })));
    }
}

#[test]
fn the_older_harness_would_have_printed_the_same() {
    let card = RateCard::named(Some("csb-compat")).unwrap();
    let usd = |attempt: &Attempt| price(attempt, &card).unwrap().usd().unwrap();
    // One task, as its result file has it: 8.696570833 s on 2 vCPUs and 4 GiB.
    let one = usd(&attempt("modal", 8_696_571, 2.0, 4096));
    assert!((one - 0.000_576_582_646_227_899_9).abs() < 1e-10, "{one}");
    // The published sums of two runs over 16 tasks.
    for (total_us, printed) in [(117_440_000, "0.0078"), (126_290_000, "0.0084")] {
        assert_eq!(format!("{:.4}", usd(&attempt("modal", total_us, 2.0, 4096))), printed);
    }
    let s = 100.0;
    let task = |backend: &str| attempt(backend, 100_000_000, 2.0, 4096);
    costs(&task("vercel"), &card, s / 3600.0 * (2.0 * 0.128 + 4.0 * 0.0212) + 0.000_000_6);
    costs(&task("aws-microvm"), &card, s * (4.0 / 2.0 * 0.000_027_694_4 + 4.0 * 0.000_003_666_7));
    let mut daytona = task("daytona");
    daytona.requested.disk_mb = Some(10 * 1024);
    costs(&daytona, &card, s * (2.0 * 0.000_014 + 4.0 * 0.000_004_5 + 5.0 * 0.000_000_03));
    assert_eq!((usd(&task("local")), usd(&task("docker"))), (0.0, 0.0));
}

#[test]
fn costs_add_up_and_failures_are_paid_for() {
    let sum = |costs: &[Cost], accepted| {
        let mut tally = CostTally::default();
        costs.iter().for_each(|cost| tally.add(cost));
        tally.finish(accepted)
    };
    let measured = Cost::Measured { usd: 0.5 };
    let lower = Cost::Estimated {
        usd: 0.25,
        parts: [("cpu".to_owned(), 0.25)].into(),
        bound: Some(Bound::Lower),
        why: vec!["x".into()],
    };
    let unknown = Cost::Unknown { why: "no price".into() };
    let known = sum(&[measured.clone(), lower.clone(), lower.clone()], 2);
    assert_eq!((known.known_usd, known.per_success_usd), (Some(1.0), Some(0.5)));
    assert_eq!((known.measured, known.estimated, known.bound), (1, 2, Some(Bound::Lower)));
    assert_eq!(known.why, [("x".to_owned(), 2)].into());

    let partly = sum(&[measured.clone(), unknown.clone()], 2);
    assert_eq!((partly.known_usd, partly.per_success_usd), (Some(0.5), None), "a part is not the whole");
    assert_eq!(sum(&[unknown], 2).known_usd, None);
    assert_eq!(sum(&[measured], 0).per_success_usd, None);
    assert_eq!(sum(&[], 0), CellCost::default());
}

#[test]
fn a_card_of_the_users_replaces_what_it_names() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rates.toml");
    let file = "name = 'ours'\ndate = '2026-11-01'\n[backend.docker]\ndate = '2026-11-01'\nsource = 'our invoice'\n\
                cpu = { usd = 0.02, per = 'core_hour' }\n";
    std::fs::write(&path, file).unwrap();
    let card = RateCard::named(path.to_str()).unwrap();
    costs(&attempt("docker", 3_601_000_000, 2.0, 512), &card, 0.02);
    assert_eq!(card.backend["daytona"], list().backend["daytona"]);
    assert_ne!(card.digest, list().digest);

    let refused = |text: &str| RateCard::parse("test", &file.replace("cpu =", text)).unwrap_err().to_string();
    assert!(refused("disk =").contains("unit of another resource"));
    assert!(refused("egress_gb = -1\ncpu =").contains("egress_gb has -1"));
    assert!(refused("creation = nan\ncpu =").contains("NaN"));
    assert!(refused("colour = 1\ncpu =").contains("rate card test"));
    let missing = RateCard::named(Some("/nowhere/rates.toml")).unwrap_err().to_string();
    assert!(missing.contains("/nowhere/rates.toml") && missing.contains("csb-compat"), "{missing}");
}

proptest! {
    #[test]
    fn no_price_is_negative_and_more_time_never_costs_less(seconds in 2u64..10_000, more in 0u64..10_000, cpus in 0.1f64..16.0, memory in 128u64..65_536) {
        for card in [list(), RateCard::named(Some("csb-compat")).unwrap()] {
            for backend in ["daytona", "vercel", "modal", "aws-microvm"] {
                let usd = |seconds: u64| price(&attempt(backend, seconds * 1_000_000, cpus, memory), &card).unwrap().usd().unwrap();
                prop_assert!(0.0 < usd(seconds) && usd(seconds) <= usd(seconds + more));
            }
        }
    }
}
