//! The same program on every store: what it promises there, what it can do, and a piece of work that shows both.
//!
//! ```sh
//! cargo run --example any_store                                     # memory
//! cargo run --example any_store -- redis://127.0.0.1:6379
//! cargo run --example any_store --features etcd -- etcd://127.0.0.1:2379      # needs protoc to build
//! cargo run --example any_store --features postgres -- 'postgres://user:password@127.0.0.1/db?mode=row'
//! cargo run --example any_store --features zookeeper -- zookeeper://127.0.0.1:2181
//! ```
//!
//! With `--alone` behind the URL the second half of the work is done on a store of its own: it must notice.

use std::{
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use anyhow::bail;
use distlock::{ErrorKind, FencingToken, LockError, LockManager, backend::Capability};

const TASKS: usize = 8;
const SECTIONS: usize = 5;

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_alone = arguments.pop_if(|last| last == "--alone").is_some();
    let url = match &arguments[..] {
        [] => std::env::var("DISTLOCK_URL").unwrap_or_else(|_| "memory:any-store".to_owned()),
        // Without a name it is a store of its own for each manager.
        [url] if url == "memory:" => "memory:any-store".to_owned(),
        [url] => url.clone(),
        more => bail!("one URL, not {}", more.len()),
    };
    let is_content = play(&url, is_alone).await?;
    Ok(if is_content { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether the store does what it says.
pub(crate) async fn play(url: &str, is_alone: bool) -> anyhow::Result<bool> {
    // Two managers, as two processes would have them.
    let one = LockManager::builder().label("one").connect(url).await?;
    let two = LockManager::builder().label("two").connect(if is_alone { "memory:" } else { url }).await?;

    let promises = one.guarantees();
    println!(
        "two holders of a lock on this store: never (Y), told apart by the token (F), possible (N), no such fault (-)\n"
    );
    println!("{promises}\n");

    // Nobody's but ours, also if this runs twice.
    let job = format!("any-store-{}-{:08x}", std::process::id(), fastrand::u32(..));
    let mut broken = Vec::new();
    let overlaps = take_turns(&one, &two, &job).await?;
    println!(
        "{TASKS} tasks on two connections, {SECTIONS} sections each, under one lock: {overlaps} overlaps"
    );
    let stale = refuse_what_is_stale(&one, &two, &job).await?;
    println!("a write under an older fencing token: {}\n", if stale { "refused" } else { "went through" });
    if overlaps > 0 || !stale {
        broken.push("exclusion".to_owned());
    }

    let (mut can, mut refused) = (0, 0);
    for capability in Capability::ALL {
        // That it waits in line is seen in how quickly the turns above came, and asked for by nobody.
        let outcome = match capability {
            Capability::Queue => None,
            _ => Some(ask_for(*capability, &one, url, &job).await),
        };
        let says = promises.can(*capability);
        let does = match outcome {
            None => says,
            Some(Ok(())) => true,
            Some(Err(error)) if error.kind() == ErrorKind::Unsupported => false,
            Some(Err(error)) => return Err(error.into()),
        };
        println!("{capability}: {}", if does { "yes" } else { "no, and it says so (UNSUPPORTED)" });
        (can, refused) = (can + usize::from(does), refused + usize::from(!does));
        if does != says {
            broken.push(capability.to_string());
        }
    }

    let sections = TASKS * SECTIONS;
    println!(
        "\nsummary store=\"{}\" sections={sections} overlaps={overlaps} can={can} refuses={refused} broken={broken:?}",
        promises.store
    );
    for locks in [one, two] {
        locks.shutdown(Duration::from_secs(5)).await;
    }
    Ok(broken.is_empty())
}

/// Adds to a number that isn't safe to add to, from tasks on both managers; how often two were at it.
async fn take_turns(one: &LockManager, two: &LockManager, job: &str) -> Result<usize, LockError> {
    let inside = Arc::new(AtomicU64::new(0));
    let overlaps = Arc::new(AtomicU64::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let locks = if task % 2 == 0 { one.clone() } else { two.clone() };
        let (job, inside, overlaps) = (job.to_owned(), inside.clone(), overlaps.clone());
        tasks.spawn(async move {
            for _ in 0..SECTIONS {
                let guard = locks.mutex(&job).wait(Duration::from_secs(30)).lock().await?;
                overlaps.fetch_add(u64::from(inside.fetch_add(1, SeqCst) > 0), SeqCst);
                guard.run(tokio::time::sleep(Duration::from_millis(1))).await?;
                inside.fetch_sub(1, SeqCst);
                guard.release().await?;
            }
            Ok::<_, LockError>(())
        });
    }
    for outcome in tasks.join_all().await {
        outcome?;
    }
    Ok(usize::try_from(overlaps.load(SeqCst)).unwrap_or(usize::MAX))
}

/// Two holds one after the other; whether a resource that remembers the larger token refuses the first holder's late write.
async fn refuse_what_is_stale(one: &LockManager, two: &LockManager, job: &str) -> Result<bool, LockError> {
    let mut seen = FencingToken::new(0);
    let mut write = |token: FencingToken| {
        let is_fresh = token >= seen;
        seen = seen.max(token);
        is_fresh
    };
    let first = one.mutex(job).lock().await?;
    let stale = first.fencing_token();
    let before = write(stale);
    first.release().await?;
    let second = two.mutex(job).lock().await?;
    let next = write(second.fencing_token());
    second.release().await?;
    Ok(before && next && !write(stale))
}

/// A small use of what not every store can do.
async fn ask_for(what: Capability, locks: &LockManager, url: &str, job: &str) -> Result<(), LockError> {
    let key = format!("{job}:{what}");
    match what {
        Capability::Fair => drop(locks.mutex(&key).fair().lock().await?),
        Capability::ReadWrite => {
            let (first, second) = tokio::try_join!(locks.rw_lock(&key).read(), locks.rw_lock(&key).read())?;
            first.release().await?;
            second.release().await?;
        }
        Capability::Semaphore => {
            let (first, second) =
                tokio::try_join!(locks.semaphore(&key, 2).acquire(), locks.semaphore(&key, 2).acquire())?;
            first.release().await?;
            second.release().await?;
        }
        Capability::Owners => drop(locks.mutex(&key).owner("transaction 4711").lock().await?),
        Capability::Latches => {
            let latch = locks.latch(&key, 2);
            latch.count_down().await?;
            latch.count_down().await?;
            latch.wait().await?;
        }
        Capability::Circles => drop(LockManager::builder().detect_circles().connect(url).await?),
        Capability::Records => {
            let call = async |text: &str| {
                let value = text.to_owned();
                locks.idempotent(&key).run(async { Ok::<_, LockError>(value) }).await
            };
            let (first, again) = (call("once").await?, call("twice").await?);
            if first != again {
                return Err(LockError::new(ErrorKind::ConcurrentModification, "idempotent"));
            }
        }
        // One that a later version has.
        _ => {
            return Err(LockError::new(ErrorKind::Unsupported, "ask")
                .detail(format!("this program doesn't know {what}")));
        }
    }
    Ok(())
}
