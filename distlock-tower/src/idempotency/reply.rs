//! The way from an execution back to the client that started it.

use tokio::sync::oneshot;

use super::future::Answer;

/// The execution's end. The client may be gone; that is no reason not to finish.
#[derive(Debug)]
pub(super) struct Reply<B, E>(oneshot::Sender<Answer<B, E>>);

pub(super) fn channel<B, E>() -> (Reply<B, E>, impl Future<Output = Option<Answer<B, E>>>) {
    let (send, receive) = oneshot::channel();
    (Reply(send), async { receive.await.ok() })
}

impl<B, E> Reply<B, E> {
    pub(super) fn send(self, answer: Answer<B, E>) {
        if self.0.send(answer).is_err() {
            tracing::debug!("the client has gone before its answer");
        }
    }

    /// Resolves when the client has gone.
    pub(super) async fn closed(&mut self) {
        self.0.closed().await;
    }
}
