#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::{Shelf, Spool};

proptest! {
    #[test]
    fn records_come_back_in_order_however_few_are_held(
        records in prop::collection::vec(prop::array::uniform3(0u64..9), 0..300),
        most in 1usize..50,
    ) {
        let place = tempfile::tempdir().unwrap();
        let mut spool = Spool::<3>::holding(most, place.path());
        for record in &records {
            spool.push(*record);
            prop_assert!(spool.kept().0 <= most, "no more are held than may be");
        }
        let spilled = spool.kept().1;
        prop_assert_eq!(spilled > 0, records.len() > most, "what fits stays in memory");
        let sorted = spool.sorted().unwrap();
        let mut expected = records.clone();
        expected.sort_unstable();
        prop_assert_eq!(sorted.all().iter().collect::<Vec<_>>(), expected.clone());
        for name in 0..10 {
            let own: Vec<[u64; 3]> = expected.iter().copied().filter(|record| record[0] == name).collect();
            let series = sorted.series(name);
            prop_assert_eq!(series.iter().collect::<Vec<_>>(), own.clone());
            prop_assert_eq!(series.iter().collect::<Vec<_>>(), own.clone(), "again");
            prop_assert_eq!((series.len(), series.at(own.len())), (own.len(), None));
            prop_assert!((0..own.len()).all(|place| series.at(place) == Some(own[place])));
        }
        sorted.check().unwrap();
        prop_assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0, "no file has a name");
    }
}

#[test]
fn values_come_back_by_their_numbers_from_disk_and_memory() {
    let place = tempfile::tempdir().unwrap();
    let mut shelf = Shelf::<String>::new(place.path());
    let value = |number: u64| format!("value {number} {}", "x".repeat(90));
    // A fixed order that is none: 7 has no divisor in common with 500.
    for number in (0..500).map(|n| n * 7 % 500) {
        shelf.put(number, &value(number)).unwrap();
        assert!(shelf.held.len() <= super::shelf::HELD, "no more is held than may be");
    }
    assert!(shelf.written > 0 && !shelf.held.is_empty(), "some on disk, some in memory");
    let shelved = shelf.sorted().unwrap();
    let values: Vec<String> = shelved.iter().map(Result::unwrap).collect();
    assert!(values.into_iter().eq((0..500).map(value)));
}

#[test]
fn a_disk_that_takes_nothing_is_told_and_never_panics() {
    let place = tempfile::tempdir().unwrap();
    let mut spool = Spool::<2>::holding(2, &place.path().join("gone"));
    (0..9).for_each(|n| spool.push([n, n]));
    assert!(spool.sorted().is_err());
}
