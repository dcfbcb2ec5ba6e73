//! Naive locks over ZooKeeper.

use std::{sync::Arc, time::Duration};

use tokio::{sync::Mutex, task::JoinSet, time::sleep};
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, Error, SessionState};

use crate::contend::{Contender, Held};

/// What is wrong with a naive lock over ZooKeeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZooKeeperFlaw {
    /// One ephemeral node for a lock. Its holder passes over what its session tells, and deletes by path, whosever node it is.
    ByPath,
    /// Looks whether anybody stands in line, and enters it in the next call.
    LooksFirst,
    /// As `ByPath`, with a new client, and so a new session, whenever the connection is lost.
    NewSession,
    /// A node that outlives its session.
    Persistent,
}

/// A naive lock over ZooKeeper.
#[derive(Clone)]
pub struct NaiveZooKeeper {
    client: Arc<Mutex<Client>>,
    places: Arc<str>,
    session: Duration,
    flaw: ZooKeeperFlaw,
    _renewal: Arc<JoinSet<()>>,
}

/// What it gives.
pub struct NaiveNode {
    locks: NaiveZooKeeper,
    path: String,
}

impl NaiveZooKeeper {
    /// Connects to `host:port`, or several of them behind commas.
    ///
    /// # Errors
    /// When no server answers.
    pub async fn connect(places: &str, session: Duration, flaw: ZooKeeperFlaw) -> anyhow::Result<Self> {
        let client = Arc::new(Mutex::new(connect(places, session).await?));
        let mut renewal = JoinSet::new();
        if flaw == ZooKeeperFlaw::NewSession {
            renewal.spawn(replace(client.clone(), places.to_owned(), session));
        }
        Ok(Self { client, places: places.into(), session, flaw, _renewal: Arc::new(renewal) })
    }

    /// The client, or a new one where its session has ended.
    async fn client(&self) -> Result<Client, Error> {
        let mut client = self.client.lock().await;
        if client.state().is_terminated() {
            *client = connect(&self.places, self.session).await?;
        }
        Ok(client.clone())
    }

    /// One try, and the node if it was taken.
    async fn attempt(&self, client: &Client, lock: &str) -> Result<Option<String>, Error> {
        let open = Acls::anyone_all();
        if self.flaw == ZooKeeperFlaw::LooksFirst {
            client.mkdir(lock, &CreateMode::Persistent.with_acls(open)).await?;
            if !client.list_children(lock).await?.is_empty() {
                return Ok(None);
            }
            let (prefix, mode) = (format!("{lock}/lock-"), CreateMode::EphemeralSequential);
            let (_, sequence) = client.create(&prefix, b"", &mode.with_acls(open)).await?;
            return Ok(Some(format!("{prefix}{sequence}")));
        }
        let mode = match self.flaw {
            ZooKeeperFlaw::Persistent => CreateMode::Persistent,
            _ => CreateMode::Ephemeral,
        };
        let options: CreateOptions<'_> = mode.with_acls(open);
        match client.create(lock, b"", &options).await {
            Ok(_) => Ok(Some(lock.to_owned())),
            Err(Error::NodeExists) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

async fn connect(places: &str, session: Duration) -> Result<Client, Error> {
    Client::connector().with_session_timeout(session).connect(places).await
}

/// Puts a new client in the place of one that has lost its connection.
async fn replace(client: Arc<Mutex<Client>>, places: String, session: Duration) {
    loop {
        let mut states = client.lock().await.state_watcher();
        while states.peek_state() == SessionState::SyncConnected {
            states.changed().await;
        }
        let mut client = client.lock().await;
        *client = loop {
            match connect(&places, session).await {
                Ok(new) => break new,
                Err(_) => sleep(Duration::from_millis(20)).await,
            }
        };
    }
}

impl Contender for NaiveZooKeeper {
    type Hold = NaiveNode;

    /// Asks every 5 ms until it is granted.
    async fn acquire(&self, key: &str, _: Duration) -> anyhow::Result<NaiveNode> {
        let lock = format!("/naive-{key}");
        loop {
            let client = self.client().await?;
            if let Some(path) = self.attempt(&client, &lock).await? {
                return Ok(NaiveNode { locks: self.clone(), path });
            }
            sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Held for NaiveNode {
    fn token(&self) -> Option<u64> {
        None
    }

    fn is_valid(&self) -> bool {
        true
    }

    async fn release(self) -> anyhow::Result<()> {
        let client = self.locks.client().await?;
        client.delete(&self.path, None).await?;
        Ok(())
    }
}
