//! A clock that is advanced by requests, so that a test about a deadline does not depend on the load of the machine.

use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// Between requests the clock runs this much slower than real time, so that timers still fire.
const SLOWDOWN: u32 = 20;
const TICK: Duration = Duration::from_millis(10);

/// Drives tokio's clock until it is dropped; requires the current-thread runtime.
pub(crate) struct DrivenClock {
    advances: UnboundedSender<Duration>,
    _guard: Sender<()>,
}

impl DrivenClock {
    pub(crate) fn start() -> Self {
        tokio::time::pause();
        // A paused clock jumps to the next timer when the runtime is idle, even while a response is pending. A blocking task prevents that.
        let (guard, dropped) = channel::<()>();
        tokio::task::spawn_blocking(move || dropped.recv());
        let (advances, mut requested) = unbounded_channel();
        tokio::spawn(async move {
            while let Some(time) = requested.recv().await {
                tokio::time::advance(time).await;
            }
        });
        let ticks = advances.clone();
        std::thread::spawn(move || {
            while ticks.send(TICK / SLOWDOWN).is_ok() {
                std::thread::sleep(TICK);
            }
        });
        Self { advances, _guard: guard }
    }

    /// A function that advances the clock, from any thread.
    pub(crate) fn advance(&self) -> impl Fn(Duration) + Send + use<> {
        let advances = self.advances.clone();
        move |time| {
            let _ = advances.send(time);
        }
    }
}
