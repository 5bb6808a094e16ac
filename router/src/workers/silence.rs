//! Whether an answer still goes on while its worker answers no probe. The kernel answers for a frozen process, so no
//! connection to it breaks.

use crate::clock::sleep;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::watch;

/// An answer that stands still for so long, while its worker answers no probe, is given up.
const SILENT_FOR: Duration = Duration::from_secs(3);

/// Watches for an answer that stands still while its worker is silent.
pub(crate) struct Silence {
    is_silent: watch::Receiver<bool>,
    lasts: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Bytes came since it was last looked at.
    goes_on: bool,
}

// === impl Silence ===

impl Silence {
    pub(super) fn of(is_silent: watch::Receiver<bool>) -> Self {
        Self {
            lasts: Box::pin(lasts(is_silent.clone())),
            is_silent,
            goes_on: false,
        }
    }

    /// Bytes of the answer came.
    pub(crate) fn went_on(&mut self) {
        self.goes_on = true;
    }

    /// Ready where the worker is silent, and no byte came while it was.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.lasts.as_mut().poll(cx));
            if !self.goes_on {
                return Poll::Ready(());
            }
            *self = Self::of(self.is_silent.clone());
        }
    }

    /// Waits for it, where no byte is expected before the end.
    pub(crate) async fn wait(mut self) {
        std::future::poll_fn(|cx| self.poll(cx)).await;
    }
}

/// Waits until the worker is silent, and goes on to be.
async fn lasts(mut is_silent: watch::Receiver<bool>) {
    loop {
        // A worker that is gone is asked nothing more, and stays as it was.
        if is_silent.wait_for(|is_silent| *is_silent).await.is_err() {
            return std::future::pending().await;
        }
        tokio::select! {
            () = sleep(SILENT_FOR) => return,
            _ = is_silent.wait_for(|is_silent| !*is_silent) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    //! Facts about answers of silent workers.

    use super::*;
    use crate::clock::Instant;

    /// Until when the answer is given up, where bytes of it come every second for so many.
    async fn given_up_after(silent: &[(u64, bool)], bytes_for: u64) -> Option<u64> {
        let (worker, is_silent) = watch::channel(false);
        let mut silence = Silence::of(is_silent);
        let began = Instant::now();
        for second in 0..60 {
            for (_, is) in silent.iter().filter(|(at, _)| *at == second) {
                worker.send_replace(*is);
            }
            if second < bytes_for {
                silence.went_on();
            }
            let next = began + Duration::from_secs(second + 1);
            let looked = std::future::poll_fn(|cx| silence.poll(cx));
            if crate::clock::timeout_at(next, looked).await.is_ok() {
                return Some(began.elapsed().as_secs());
            }
        }
        None
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_stands_still_is_given_up_once_its_worker_is_silent() {
        assert_eq!(given_up_after(&[], 0).await, None);
        assert_eq!(given_up_after(&[(5, true)], 0).await, Some(8));
        // What came before counts for nothing, but for one more look.
        assert_eq!(given_up_after(&[(5, true)], 4).await, Some(11));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_goes_on_is_kept_and_so_is_one_whose_worker_answers_again() {
        assert_eq!(given_up_after(&[(5, true)], 60).await, None);
        assert_eq!(given_up_after(&[(5, true), (7, false)], 0).await, None);
        assert_eq!(
            given_up_after(&[(5, true), (7, false), (20, true)], 0).await,
            Some(23)
        );
    }
}
