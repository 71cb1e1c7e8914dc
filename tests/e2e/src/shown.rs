//! What a person sees, as snapshots. Times, ids and the machine's own names differ from run to run and are replaced.

/// What is replaced, and by what.
pub const FILTERS: &[(&str, &str)] = &[
    (r"\b\d{8}-\d{6}-[0-9a-f]{4}\b", "[run]"),
    (r"\b\d+(\.\d+)? (µs|ms|s|min \d\d s)\b", "[time]"),
    (r"\bhost \([^)]*\)", "host ([os])"),
    (r"\b[0-9a-f]{32}\b", "[id]"),
    (r"bundled-\d+/[0-9a-f]{64}", "bundled/[digest]"),
    (r"sha256:[0-9a-f]{12,64}", "[digest]"),
    (r"\b[0-9a-f]{12}\b", "[digest]"),
    (r"/\S*/sandbox-bench-e2e-\w+", "[dir]"),
    (r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", "[instant]"),
    (r"\bsleep 3600\.\d+", "[sleep]"),
    // Columns are as wide as the times in them.
    (r" {2,}", "  "),
    // Whether the first create is an outlier is the machine's doing.
    (r"\n[^\n]*it may have filled caches", ""),
];

/// Compares a text with its snapshot.
#[macro_export]
macro_rules! assert_shown {
    ($name:expr, $text:expr) => {
        insta::with_settings!({ filters => $crate::shown::FILTERS.to_vec(), omit_expression => true }, {
            insta::assert_snapshot!($name, $text);
        })
    };
}
