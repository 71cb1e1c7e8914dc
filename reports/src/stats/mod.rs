//! Statistics, each by a named method. Nothing here knows where values come from; what they mean is the caller's part.
//!
//! * [`quantile`] by R-7 or nearest rank, [`Ecdf`], [`KaplanMeier`] for times of which some are censored;
//! * [`Sample`] and [`Bootstrap`]: intervals by resampling whole clusters, deterministic, with the coverage stated;
//! * [`proportion`]: Wilson's interval of a share and Newcombe's of a difference of shares;
//! * [`mann_whitney`], exact where that can be afforded, with the smallest p that the data could give; [`holm`];
//! * [`paired`]: differences by task; [`Components`]: variance between and within groups;
//! * [`rank`], which refuses below [`MIN_REPLICATES`].
//!
//! Two rules hold everywhere. Nothing is trimmed. A censored value says "at least this long": it is never dropped and
//! never taken for the time itself. What failed is [`Time::never`], so that failing fast is not being fast. Values of distributions come from `statrs`; everything is checked against SciPy
//! (`reports/tests/scipy`).

mod bootstrap;
mod ecdf;
mod interval;
mod median;
mod paired;
pub mod proportion;
mod quantile;
mod rank_test;
mod ranking;
mod sample;
mod survival;
mod units;
mod variance;

#[cfg(test)]
mod tests;

pub use bootstrap::Bootstrap;
pub use ecdf::{Ecdf, ecdf};
pub use interval::Interval;
pub use median::{Resampled, Timed, median, resampled_median};
pub use paired::{Pair, paired};
pub use quantile::{Method, quantile, quantile_at};
pub use rank_test::{RankSums, RankTest, holm, mann_whitney};
pub use ranking::{ByTask, MIN_REPLICATES, Place, TooFew, enough, rank};
pub use sample::{Sample, Time};
pub use survival::{KaplanMeier, Step, steps};
pub use units::{Unit, Units};
pub use variance::Components;
