//! Work that ends even if nobody waits for it any more.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

/// A future that a task of its own goes on with if this is dropped before its end. A task from the beginning would cost
/// each request a turn of the runtime, and perhaps another thread's.
pub(super) struct Outliving<T: Send + 'static>(Option<Work<T>>);

type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl<T: Send + 'static> Outliving<T> {
    pub(super) fn new(work: impl Future<Output = T> + Send + 'static) -> Self {
        Self(Some(Box::pin(work)))
    }
}

impl<T: Send + 'static> Future for Outliving<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let Some(work) = &mut self.0 else { return Poll::Pending };
        let polled = work.as_mut().poll(cx);
        if polled.is_ready() {
            self.0 = None;
        }
        polled
    }
}

impl<T: Send + 'static> Drop for Outliving<T> {
    fn drop(&mut self) {
        // Without a runtime, the process ends.
        if let (Some(work), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(work);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Waker;

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn work_whose_waiter_has_gone_is_done_nevertheless() {
        let (go, goes) = oneshot::channel();
        let (done, is_done) = oneshot::channel();
        let mut work = Box::pin(Outliving::new(async move {
            goes.await.unwrap();
            done.send(7).unwrap();
        }));
        assert!(work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(work);
        go.send(()).unwrap();
        assert_eq!(is_done.await, Ok(7));
        assert_eq!(pin!(Outliving::new(async { 8 })).await, 8);
    }
}
