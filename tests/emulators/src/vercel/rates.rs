//! Rates: so many in a time.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::error::{ApiError, Result};

/// A number that may be used up within a fixed window of time; it then begins anew.
pub(super) struct Rate {
    what: &'static str,
    limit: u32,
    window: Duration,
    used: Mutex<Option<(Instant, u32)>>,
}

impl Rate {
    pub(super) fn new(what: &'static str, limit: u32, window: Duration) -> Rate {
        Rate { what, limit, window, used: Mutex::new(None) }
    }

    /// Takes some.
    ///
    /// # Errors
    /// 429 with the seconds until the window ends.
    pub(super) fn take(&self, amount: u32) -> Result<()> {
        let now = Instant::now();
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, count) = match *used {
            Some((since, count)) if now < since + self.window => (since, count),
            _ => (now, 0),
        };
        if count.saturating_add(amount) > self.limit {
            let left = (since + self.window).saturating_duration_since(now);
            let message = format!("Too many {}: at most {} in {:?}.", self.what, self.limit, self.window);
            return Err(ApiError::rate_limited(message, left.as_secs() + 1));
        }
        *used = Some((since, count + amount));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_used_up_comes_back_with_the_next_window() {
        let rate = Rate::new("processors", 4, Duration::from_secs(60));
        rate.take(3).unwrap();
        tokio::time::advance(Duration::from_secs(20)).await;
        let refused = rate.take(2).unwrap_err();
        assert_eq!((refused.code, refused.retry_after), ("rate_limited", Some(41)));
        rate.take(1).unwrap();
        tokio::time::advance(Duration::from_secs(41)).await;
        rate.take(4).unwrap();
    }
}
