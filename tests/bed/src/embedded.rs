//! The embedded engine: a DynamoDB in this process, on a loopback port, stopped on drop.

use std::net::TcpListener;
use std::thread::JoinHandle;

use tokio::sync::oneshot;

pub struct Engine {
    endpoint: String,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Engine {
    /// Starts an empty engine in its own thread, so that it keeps serving while a client blocks.
    ///
    /// # Errors
    /// When there is no free port, thread or memory.
    pub fn start() -> Result<Self, String> {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| format!("no free port: {error}"))?;
        listener.set_nonblocking(true).map_err(|error| error.to_string())?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let database = dynoxide::Database::memory().map_err(|error| format!("the embedded engine: {error}"))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| format!("the embedded engine: {error}"))?;
        let (stop, stopped) = oneshot::channel();
        let serve = move || {
            runtime.block_on(async {
                let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
                // No graceful shutdown: no client waits for answers, and a kept-alive connection would delay it.
                tokio::select! {
                    _ = stopped => {}
                    _ = dynoxide::server::serve_with_shutdown(listener, database, std::future::pending()) => {}
                }
            });
        };
        let thread = std::thread::Builder::new()
            .name("embedded-engine".to_owned())
            .spawn(serve)
            .map_err(|error| format!("the embedded engine: {error}"))?;
        Ok(Self { endpoint: format!("http://{address}"), stop: Some(stop), thread: Some(thread) })
    }

    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
