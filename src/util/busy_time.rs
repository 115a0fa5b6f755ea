//! How long the code of a future computes, without its waits.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::time::{Duration, Instant};

/// Awaits a future. Returns its output, and how long its code ran.
pub(crate) async fn busy_time<F: Future>(future: F) -> (F::Output, Duration) {
    let mut future = pin!(future);
    let mut busy = Duration::ZERO;
    let output = poll_fn(|context| {
        let began = Instant::now();
        let polled = future.as_mut().poll(context);
        busy += began.elapsed();
        polled
    })
    .await;
    (output, busy)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wait for the API server is no cost of the rollout.
    #[tokio::test]
    async fn wait_does_not_count() {
        let wait = Duration::from_millis(200);
        let began = Instant::now();
        let (output, busy) = busy_time(async {
            tokio::time::sleep(wait).await;
            3
        })
        .await;
        assert!(output == 3 && began.elapsed() >= wait && busy < wait, "{busy:?}");
    }
}
