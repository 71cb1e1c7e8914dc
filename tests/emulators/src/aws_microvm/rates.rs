//! Calls per second, for the operations that have a quota of them.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::error::{ApiError, Kind, Result};
use super::options::Rates;

/// Counts the calls of one second, which begins with its first.
pub(super) struct Limiter {
    rates: Rates,
    /// By operation.
    used: Mutex<Vec<(&'static str, Instant, u32)>>,
}

impl Limiter {
    pub(super) fn new(rates: Rates) -> Limiter {
        Limiter { rates, used: Mutex::default() }
    }

    /// # Errors
    /// `ThrottlingException` if the second is used up.
    pub(super) fn take(&self, operation: &'static str) -> Result<()> {
        let limit = match operation {
            "RunMicrovm" => self.rates.run,
            "ResumeMicrovm" => self.rates.resume,
            "SuspendMicrovm" => self.rates.suspend,
            "TerminateMicrovm" => self.rates.terminate,
            "GetMicrovm" => self.rates.get,
            "CreateMicrovmAuthToken" => self.rates.token,
            _ => return Ok(()),
        };
        let now = Instant::now();
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.retain(|(_, since, _)| now < *since + Duration::from_secs(1));
        match used.iter_mut().find(|(name, ..)| *name == operation) {
            Some((_, _, count)) if *count >= limit => Err(ApiError::new(Kind::Throttling, "Rate exceeded")),
            Some((_, _, count)) => {
                *count += 1;
                Ok(())
            }
            None if limit == 0 => Err(ApiError::new(Kind::Throttling, "Rate exceeded")),
            None => {
                used.push((operation, now, 1));
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_second_that_is_used_up_is_followed_by_another() {
        let limiter = Limiter::new(Rates { suspend: 2, ..Rates::default() });
        limiter.take("SuspendMicrovm").unwrap();
        limiter.take("SuspendMicrovm").unwrap();
        assert_eq!(limiter.take("SuspendMicrovm").unwrap_err().kind, Kind::Throttling);
        limiter.take("ResumeMicrovm").unwrap();
        tokio::time::advance(Duration::from_secs(1)).await;
        limiter.take("SuspendMicrovm").unwrap();
    }
}
