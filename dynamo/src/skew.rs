//! The offset of the local clock from the table's. Rows are judged and leases are written by the table's clock: a laptop or a
//! frozen container may be minutes off. Every answer contains the server's time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use aws_sdk_dynamodb::config::interceptors::{
    BeforeDeserializationInterceptorContextRef, BeforeTransmitInterceptorContextRef,
};
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_sdk_dynamodb::primitives::{DateTime, DateTimeFormat};

/// The largest offset that is corrected. AWS rejects requests that are signed five minutes off.
pub(super) const MOST: i64 = 900;

/// When a request was sent and answered by the local clock, and when the server answered by its own.
#[derive(Clone, Debug, Default)]
pub(super) struct Exchange(Arc<Mutex<Times>>);

#[derive(Clone, Copy, Debug, Default)]
struct Times {
    sent: Option<SystemTime>,
    received: Option<SystemTime>,
    /// In whole seconds, as in the header.
    served: Option<i64>,
}

impl Exchange {
    /// Seconds by which the local clock is ahead of the server's, negative if it is behind; 0 if the clocks may agree.
    pub(super) fn offset(&self) -> i64 {
        let times = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match (times.sent, times.received, times.served) {
            (Some(sent), Some(received), Some(served)) => offset(milliseconds(sent), milliseconds(received), served),
            _ => 0,
        }
    }

    fn note(&self, note: impl FnOnce(&mut Times)) {
        note(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// The server answered between `sent` and `received`, in second `served`: a clock that was past it when sending is ahead, and a
/// clock that was before it when receiving is behind. Rounded up, which keeps rows longer.
fn offset(sent: i64, received: i64, served: i64) -> i64 {
    let (from, until) = (served.saturating_mul(1_000), served.saturating_add(1).saturating_mul(1_000));
    let received = received.max(sent);
    if (from..until).contains(&sent) || sent < from && received >= from {
        return 0;
    }
    -(from.saturating_sub(received).div_euclid(1_000))
}

fn milliseconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    i64::try_from(since).unwrap_or(i64::MAX)
}

impl Intercept for Exchange {
    fn name(&self) -> &'static str {
        "Exchange"
    }

    fn read_before_transmit(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        components: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let sent = components.time_source().map(|clock| clock.now());
        self.note(|times| *times = Times { sent, ..Times::default() });
        Ok(())
    }

    fn read_before_deserialization(
        &self,
        answer: &BeforeDeserializationInterceptorContextRef<'_>,
        components: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let received = components.time_source().map(|clock| clock.now());
        let date = answer.response().headers().get("date");
        let served = date.and_then(|date| DateTime::from_str(date, DateTimeFormat::HttpDate).ok());
        self.note(|times| {
            times.received = received;
            times.served = served.map(|served| served.secs());
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::offset;

    #[test]
    fn a_clock_is_off_only_when_no_network_can_explain_it() {
        // The server named second 100: it answered between 100.000 and 100.999.
        for (sent, received, expected) in [
            (100_000, 100_050, 0),
            (100_950, 101_020, 0),
            (90_000, 100_000, 0),
            // A slow answer does not mean that the clock is ahead.
            (99_000, 109_000, 0),
            (100_999, 100_999, 0),
            (101_000, 101_000, 1),
            (101_001, 101_050, 2),
            (104_000, 104_000, 4),
            (104_001, 104_300, 5),
            (400_000, 400_100, 301),
            // The clock was changed during the request.
            (400_000, 100_100, 300),
            // Behind, by the smallest possible amount.
            (99_900, 99_999, 0),
            (98_900, 99_000, -1),
            (97_000, 97_100, -2),
            (-190_000, -189_900, -289),
        ] {
            assert_eq!(offset(sent, received, 100), expected, "{sent} {received}");
        }
        assert_eq!(offset(i64::MAX, i64::MAX, i64::MAX), 0);
    }
}
