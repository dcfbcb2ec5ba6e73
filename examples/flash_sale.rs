//! A flash sale: 100 pieces, 2000 buyers, three processes, of which whoever sells just now is killed again and again. Exactly 100 are
//! sold, each buyer has one at most, and the exit status says whether that is true.
//!
//! The lock keeps the sales in line, so that nobody is charged for a piece that is gone. The stock is in Redis too, and takes a sale
//! only under a fencing token that isn't stale, in one script with the receipt: a process that dies in the middle has sold or has not.
//!
//! ```sh
//! DISTLOCK_URL=redis://127.0.0.1:6379 cargo run --example flash-sale
//! DISTLOCK_URL=redis://127.0.0.1:6379 cargo run --example flash-sale -- --naive     # read, charge, write: it must notice
//! ```

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, ensure};
use distlock::{
    LockManager,
    fenced::{self, Refusal},
};
use redis::{AsyncTypedCommands, Script, aio::MultiplexedConnection};
use tokio::task::JoinSet;

const STOCK: usize = 100;
const BUYERS: usize = 2000;
const PROCESSES: usize = 3;
const KILLS: usize = 5;
/// Short, so that the sale goes on soon after a kill.
const TTL: Duration = Duration::from_millis(600);
const LIMIT: Duration = Duration::from_secs(90);

/// Where a sale is kept: the stock, a hash, and its receipts, one field for each buyer.
#[derive(Clone, Debug)]
struct Sale {
    name: String,
    stock: String,
    receipts: String,
}

impl Sale {
    fn new(name: String) -> Self {
        // What is in braces decides about the slot in a cluster: both are in one.
        Self { stock: format!("{{{name}}}:stock"), receipts: format!("{{{name}}}:receipts"), name }
    }

    /// How many are left, and whether this buyer has one.
    async fn look(&self, redis: &mut MultiplexedConnection, buyer: usize) -> anyhow::Result<(usize, bool)> {
        let mut look = redis::pipe();
        look.hget(&self.stock, "left").hexists(&self.receipts, buyer);
        Ok(look.query_async(redis).await?)
    }
}

/// What one process does: serves its buyers, all at once, and says who got a piece.
async fn serve(url: &str, sale: Sale, buyers: std::ops::Range<usize>, naive: bool) -> anyhow::Result<()> {
    let locks = LockManager::connect(url).await?;
    let redis = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    let mut asking = JoinSet::new();
    for buyer in buyers {
        let (locks, mut redis, sale) = (locks.clone(), redis.clone(), sale.clone());
        asking.spawn(async move {
            let bought = match naive {
                true => buy_naively(&mut redis, &sale, buyer).await?,
                false => buy(&locks, &mut redis, &sale, buyer).await?,
            };
            if bought {
                println!("sold {buyer}");
            }
            anyhow::Ok(())
        });
    }
    while let Some(asked) = asking.join_next().await {
        asked??;
    }
    Ok(())
}

/// Whether this buyer has a piece in the end.
async fn buy(
    locks: &LockManager,
    redis: &mut MultiplexedConnection,
    sale: &Sale,
    buyer: usize,
) -> anyhow::Result<bool> {
    loop {
        // Nobody has to stand in line for what is gone, or what was bought by a process that has died since.
        let (left, bought) = sale.look(redis, buyer).await?;
        if left == 0 || bought {
            return Ok(bought);
        }
        let guard = locks.mutex(sale.name.as_str()).ttl(TTL).wait(LIMIT).lock().await?;
        let token = guard.fencing_token();
        let sold = guard.run(async {
            let (left, bought) = sale.look(redis, buyer).await?;
            if left == 0 || bought {
                return Ok(bought);
            }
            charge().await;
            let reply = Script::new(fenced::TAKE.text())
                .key(&sale.stock)
                .key(&sale.receipts)
                .arg(token.get())
                .arg("left")
                .arg(1)
                .arg(buyer)
                .invoke_async(redis)
                .await?;
            match fenced::outcome(reply) {
                Ok(_) => Ok(true),
                Err(Refusal::NotEnough) => Ok(false),
                Err(stale) => Err(anyhow::Error::new(stale)),
            }
        });
        match sold.await {
            Ok(Ok(bought)) => return Ok(bought),
            Ok(Err(error)) if error.is::<Refusal>() => {} // too late: stand in line again
            Ok(Err(error)) => return Err(error),
            Err(lost) => eprintln!("buyer {buyer}: {lost}"),
        }
    }
}

/// The counter-example: no lock, and the stock is written as it was read.
async fn buy_naively(redis: &mut MultiplexedConnection, sale: &Sale, buyer: usize) -> anyhow::Result<bool> {
    let (left, bought) = sale.look(redis, buyer).await?;
    if left == 0 || bought {
        return Ok(bought);
    }
    charge().await;
    let mut sell = redis::pipe();
    sell.hset(&sale.stock, "left", left - 1).ignore().hset(&sale.receipts, buyer, 1).ignore();
    sell.exec_async(redis).await?;
    Ok(true)
}

/// The slow part, a payment.
async fn charge() {
    tokio::time::sleep(Duration::from_millis(fastrand::u64(1..8))).await;
}

/// A process that sells, and to whom.
struct Seller {
    buyers: std::ops::Range<usize>,
    child: Child,
}

impl Seller {
    fn start(
        sale: &Sale,
        buyers: std::ops::Range<usize>,
        naive: bool,
        sold: &Arc<Mutex<BTreeSet<usize>>>,
    ) -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--serve", &sale.name, &buyers.start.to_string(), &buyers.end.to_string()])
            .args(naive.then_some("--naive"))
            .stdout(Stdio::piped())
            .spawn()?;
        let lines = BufReader::new(child.stdout.take().context("it is piped")?).lines();
        let sold = Arc::clone(sold);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some(buyer) = line.strip_prefix("sold ").and_then(|buyer| buyer.parse().ok()) {
                    sold.lock().unwrap_or_else(PoisonError::into_inner).insert(buyer);
                }
            }
        });
        Ok(Self { buyers, child })
    }
}

impl Drop for Seller {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop((self.child.kill(), self.child.wait()));
    }
}

/// Runs the sale, kills who sells, and judges.
async fn sell(url: &str, naive: bool) -> anyhow::Result<()> {
    let locks = LockManager::connect(url).await?;
    locks.ping().await?;
    let mut redis = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    let sale = Sale::new(format!("flash-sale-{:08x}", fastrand::u32(..)));
    redis.hset(&sale.stock, "left", STOCK).await?;

    let sold = Arc::default();
    let mut sellers = Vec::new();
    for process in 0..PROCESSES {
        let buyers = BUYERS * process / PROCESSES..BUYERS * (process + 1) / PROCESSES;
        sellers.push(Seller::start(&sale, buyers, naive, &sold)?);
    }
    // After how many sales somebody is killed.
    let mut kills: Vec<usize> = (0..KILLS).map(|_| fastrand::usize(1..STOCK)).collect();
    kills.sort_unstable_by(|a, b| b.cmp(a));
    let mut killed = 0;
    let selling = async {
        while !sellers.is_empty() {
            tokio::time::sleep(Duration::from_millis(3)).await;
            let count = redis.hlen(&sale.receipts).await?;
            if kills.pop_if(|after| *after <= count).is_some() {
                let holder = locks.inspect(sale.name.as_str()).await?.holder.and_then(|holder| holder.label);
                let is_holder = |seller: &Seller| {
                    holder.as_ref().is_some_and(|label| label.ends_with(&format!(":{}", seller.child.id())))
                };
                let victim = sellers.iter().position(is_holder);
                let victim = sellers.swap_remove(victim.unwrap_or_else(|| fastrand::usize(..sellers.len())));
                println!("{count:3} sold, process {} is killed while it sells", victim.child.id());
                let buyers = victim.buyers.clone();
                drop(victim);
                sellers.push(Seller::start(&sale, buyers, naive, &sold)?);
                killed += 1;
            }
            for seller in std::mem::take(&mut sellers) {
                let mut seller = seller;
                match seller.child.try_wait()? {
                    Some(status) => ensure!(status.success(), "a seller ended with {status}"),
                    None => sellers.push(seller),
                }
            }
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(LIMIT, selling).await.context("the sale doesn't end")??;

    let left: i64 = redis.hget(&sale.stock, "left").await?.context("the stock is there")?.parse()?;
    let receipts: BTreeSet<usize> = redis::cmd("HKEYS").arg(&sale.receipts).query_async(&mut redis).await?;
    redis.del((&sale.stock, &sale.receipts)).await?;
    let told = settled(&sold, receipts.len()).await;
    println!("summary stock={STOCK} buyers={BUYERS} sold={} left={left} kills={killed}", receipts.len());
    ensure!(receipts.len() == STOCK && left == 0, "{} sold of {STOCK}, {left} left", receipts.len());
    ensure!(told == receipts, "who was told of a sale isn't who has a receipt");
    Ok(())
}

/// Who was told; the last lines may still be on their way.
async fn settled(sold: &Mutex<BTreeSet<usize>>, expected: usize) -> BTreeSet<usize> {
    for _ in 0..100 {
        let told = sold.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if told.len() >= expected {
            return told;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    sold.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::var("DISTLOCK_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let naive = arguments.iter().any(|argument| argument == "--naive");
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--serve", name, first, end, ..] => {
            serve(&url, Sale::new(name.to_owned()), first.parse()?..end.parse()?, naive).await
        }
        _ => sell(&url, naive).await,
    }
}
