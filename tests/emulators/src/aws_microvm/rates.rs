//! Calls per second, for the operations that have a quota of them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use super::error::{ApiError, Kind, Result};
use super::options::Rates;

/// A bucket of calls for each operation: full at first, with the calls of one second, which is also how fast it fills.
pub(super) struct Limiter {
    rates: Rates,
    /// By operation: what is left, and when it was counted.
    left: Mutex<HashMap<&'static str, (f64, Instant)>>,
}

impl Limiter {
    pub(super) fn new(rates: Rates) -> Limiter {
        Limiter { rates, left: Mutex::default() }
    }

    /// # Errors
    /// `ThrottlingException` if the bucket is empty.
    pub(super) fn take(&self, operation: &'static str) -> Result<()> {
        let rate = f64::from(match operation {
            "RunMicrovm" => self.rates.run,
            "ResumeMicrovm" => self.rates.resume,
            "SuspendMicrovm" => self.rates.suspend,
            "TerminateMicrovm" => self.rates.terminate,
            "GetMicrovm" => self.rates.get,
            "CreateMicrovmAuthToken" => self.rates.token,
            _ => return Ok(()),
        });
        let now = Instant::now();
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let (calls, since) = left.entry(operation).or_insert((rate, now));
        *calls = (*calls + since.elapsed().as_secs_f64() * rate).min(rate);
        *since = now;
        if *calls < 1.0 {
            return Err(ApiError::new(Kind::Throttling, "Rate exceeded"));
        }
        *calls -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn calls_that_are_used_up_come_back_with_time() {
        let limiter = Limiter::new(Rates { suspend: 2, ..Rates::default() });
        limiter.take("SuspendMicrovm").unwrap();
        limiter.take("SuspendMicrovm").unwrap();
        assert_eq!(limiter.take("SuspendMicrovm").unwrap_err().kind, Kind::Throttling);
        limiter.take("ResumeMicrovm").unwrap();
        tokio::time::advance(Duration::from_millis(500)).await;
        limiter.take("SuspendMicrovm").unwrap();
        assert!(limiter.take("SuspendMicrovm").is_err());
    }
}
