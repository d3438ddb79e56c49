//! A clock that moves with requests instead of with the machine: a test about a deadline does not depend on how busy it is.

use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// Beside requests time passes this much slower than outside, so that whoever waits is woken at last.
const SLOWER: u32 = 20;
const TICK: Duration = Duration::from_millis(10);

/// While it lives, tokio's clock is driven: of this test's thread, which is the whole of its runtime.
pub(crate) struct Driven {
    passed: UnboundedSender<Duration>,
    _held: Sender<()>,
}

impl Driven {
    pub(crate) fn start() -> Self {
        tokio::time::pause();
        // A paused clock jumps to the next timer when nobody is busy, also while an answer is on its way; not beside this.
        let (held, dropped) = channel::<()>();
        tokio::task::spawn_blocking(move || dropped.recv());
        let (passed, mut passing) = unbounded_channel();
        tokio::spawn(async move {
            while let Some(time) = passing.recv().await {
                tokio::time::advance(time).await;
            }
        });
        let slowly = passed.clone();
        std::thread::spawn(move || {
            while slowly.send(TICK / SLOWER).is_ok() {
                std::thread::sleep(TICK);
            }
        });
        Self { passed, _held: held }
    }

    /// What lets time pass, from any thread.
    pub(crate) fn pass(&self) -> impl Fn(Duration) + Send + use<> {
        let passed = self.passed.clone();
        move |time| {
            let _ = passed.send(time);
        }
    }
}
