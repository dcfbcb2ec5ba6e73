//! One replica of the service: a server on a free port with a lock manager of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use distlock::LockManager;
use distlock::tower::{Executions, IdempotencyLayer};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::ledger::Ledger;
use crate::options::Options;
use crate::service::{self, Shop};

/// How long what is under way may take to finish at the end.
const GRACE: Duration = Duration::from_secs(10);

/// A running replica.
#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) address: SocketAddr,
    locks: LockManager,
    executions: Executions,
    stop: oneshot::Sender<()>,
    server: JoinHandle<std::io::Result<()>>,
}

impl Replica {
    /// Starts it. A repeat of a payment that is in progress waits for `patience`, then it is answered 409.
    pub(crate) async fn start(
        name: &str,
        options: &Options,
        ledger: &Arc<Ledger>,
        patience: Duration,
    ) -> anyhow::Result<Self> {
        let label = format!("orders-{name}:{}", std::process::id());
        // A lock error's text tells the whole story, so its sources needn't be told after it.
        let locks = LockManager::builder()
            .label(label)
            .connect(&options.url)
            .await
            .map_err(|error| anyhow!("DISTLOCK_URL: {error}"))?;
        // One room of keys for all callers will do for a play. A real shop names the caller, as its authentication knows
        // it: `.scope(|request| request.extensions.get::<User>().map(|user| Scope::new(&user.id)))`.
        let layer = IdempotencyLayer::builder(&locks).anonymous().require_key().wait(patience).build()?;
        let executions = layer.executions();
        let shop = Shop { locks: locks.clone(), ledger: ledger.clone(), naive: options.naive };
        let routes = service::routes(Arc::new(shop), (!options.naive.without_layer).then_some(layer));

        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("a free loopback port")?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let server = axum::serve(listener, routes).with_graceful_shutdown(async move {
            // Told to stop, or the one who could tell it has gone.
            let _ = stopped.await;
        });
        let server = tokio::spawn(server.into_future());
        Ok(Self { address, locks, executions, stop, server })
    }

    /// Ends it in good order: no new requests, executions whose clients have gone are finished, then the locks.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        // An error says that it has ended already, which shows below.
        let _ = self.stop.send(());
        // A client that never finishes its request must not keep it up.
        if let Ok(ended) = tokio::time::timeout(GRACE, self.server).await {
            ended.context("the server panicked")??;
        }
        let left = self.executions.drain(GRACE).await;
        let report = self.locks.shutdown(GRACE).await;
        anyhow::ensure!(
            left == 0 && report.is_clean(),
            "not a clean end: {left} executions left, {report:?}"
        );
        Ok(())
    }
}
