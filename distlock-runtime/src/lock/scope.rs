//! Lock scopes: which locks the code being polled is under, and which manager its attributes use.
//!
//! A scope is set while a body is polled, so it survives `.await` and moves between workers, and it ends with the body.
//! Spawned tasks don't inherit it unless they are wrapped.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;

use super::Shared;
use crate::backend::Mode;
use crate::clock::within;
use crate::engine::{Engine, Hold, Lease, View};
use crate::key::LockKey;

tokio::task_local! {
    static SCOPE: Scope;
}

/// A chain of holds, innermost first, and a manager.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    manager: Option<Arc<Shared>>,
    holds: Option<Arc<Node>>,
}

#[derive(Debug)]
struct Node {
    engine: Weak<Engine>,
    view: Arc<View>,
    outer: Option<Arc<Node>>,
}

impl Scope {
    /// The scope of the code being polled.
    pub(crate) fn current() -> Self {
        SCOPE.try_with(Clone::clone).unwrap_or_default()
    }

    pub(super) fn manager(self) -> Option<Arc<Shared>> {
        self.manager
    }

    pub(crate) fn with_manager(mut self, manager: Arc<Shared>) -> Self {
        self.manager = Some(manager);
        self
    }

    pub(crate) fn or_manager(mut self, manager: &Arc<Shared>) -> Self {
        self.manager.get_or_insert_with(|| manager.clone());
        self
    }

    pub(super) fn with_hold(self, hold: &Hold) -> Self {
        let engine = Arc::downgrade(hold.engine());
        let node = Node { engine, view: hold.view().clone(), outer: self.holds };
        Self { manager: self.manager, holds: Some(Arc::new(node)) }
    }

    /// With a record's claim, under which code runs once.
    #[cfg(feature = "idempotent")]
    pub(crate) fn with_view(self, engine: &Arc<Engine>, view: &Arc<View>) -> Self {
        let node = Node { engine: Arc::downgrade(engine), view: view.clone(), outer: self.holds };
        Self { manager: self.manager, holds: Some(Arc::new(node)) }
    }

    /// Whether the code is under no hold at all.
    pub(super) fn holds_nothing(&self) -> bool {
        self.holds.is_none()
    }

    /// The innermost hold, also if it has been lost since: a body that runs on (`on_lost = signal`) still has its guard.
    pub(super) fn innermost(&self) -> Option<Arc<View>> {
        self.holds.as_ref().map(|node| node.view.standing())
    }

    /// The holds of this manager that the code is under, permits of semaphores aside.
    pub(super) fn views(&self, engine: &Arc<Engine>) -> Vec<Arc<View>> {
        let counts = |lease: &Arc<Lease>| !matches!(lease.mode(), Mode::Permits { .. });
        self.nodes()
            .filter(|node| node.engine.as_ptr() == Arc::as_ptr(engine))
            .map(|node| node.view.standing())
            .filter(|view| !view.is_over() && view.lease().is_some_and(counts))
            .collect()
    }

    /// Whether the code is under a valid hold of this key, of whatever manager.
    pub(super) fn holds(&self, key: &LockKey) -> bool {
        self.nodes().any(|node| node.view.key() == Some(key) && node.view.is_standing())
    }

    /// How many permits of this semaphore of this manager the code is under, over all its holds.
    pub(super) fn permits(&self, engine: &Arc<Engine>, key: &LockKey) -> u64 {
        let mut seen: Vec<*const View> = Vec::new();
        self.nodes()
            .filter(|node| node.engine.as_ptr() == Arc::as_ptr(engine) && node.view.is_valid())
            .filter(|node| {
                // Code may be under one guard twice.
                let view = Arc::as_ptr(&node.view);
                let is_new = !seen.contains(&view);
                seen.push(view);
                is_new
            })
            .filter_map(|node| node.view.lease().filter(|lease| lease.key == *key))
            .map(|lease| match lease.mode() {
                Mode::Permits { weight, .. } => u64::from(weight),
                _ => 0,
            })
            .sum()
    }

    fn nodes(&self) -> impl Iterator<Item = &Node> {
        std::iter::successors(self.holds.as_deref(), |node| node.outer.as_deref())
    }

    /// A share of the hold on this key of this manager, if the code is under one.
    pub(super) fn find(&self, engine: &Arc<Engine>, key: &LockKey) -> Option<Hold> {
        self.standing(engine, key).find_map(|view| Hold::of(&view, engine))
    }

    /// The same, once a conversion that is under way is done: until then nobody joins the hold, but the code is under it. `None`,
    /// too, if that takes longer than this.
    pub(super) async fn find_settled(
        &self,
        engine: &Arc<Engine>,
        key: &LockKey,
        patience: Duration,
    ) -> Option<Hold> {
        loop {
            if let Some(hold) = self.find(engine, key) {
                return Some(hold);
            }
            let view = self.standing(engine, key).find(|view| !view.is_over())?;
            Box::pin(within(patience, view.settled())).await?;
        }
    }

    /// The holds on this key of this manager that the code is under, innermost first.
    fn standing(&self, engine: &Arc<Engine>, key: &LockKey) -> impl Iterator<Item = Arc<View>> {
        self.nodes()
            .filter(move |node| node.view.key() == Some(key) && node.engine.as_ptr() == Arc::as_ptr(engine))
            .map(|node| node.view.standing())
    }

    /// Runs code in this scope.
    pub(super) fn enter<T>(&self, code: impl FnOnce() -> T) -> T {
        SCOPE.sync_scope(self.clone(), code)
    }

    pub(crate) fn wrap<F>(self, future: F) -> Scoped<F> {
        Scoped { scope: self, future }
    }
}

pin_project! {
    /// A future that is polled in a lock scope; made by `LockManager::scope`, `LockManager::inherit` and `Guard::scope`.
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct Scoped<F> {
        scope: Scope,
        #[pin]
        future: F,
    }
}

impl<F: Future> Future for Scoped<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        this.scope.enter(|| this.future.poll(cx))
    }
}
