//! What the program is told: arguments, and the environment's `DISTLOCK_URL`.

use std::env;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, bail};

pub(crate) const USAGE: &str = "\
A service that takes payments, played against itself. Needs nothing installed.

    cargo run --example orders                    plays its scenes and judges what it saw
    cargo run --example orders -- --serve         stays up for you to try; Ctrl-C ends it
    DISTLOCK_URL=redis://127.0.0.1:6379 cargo run --example orders
                                                  the same on Redis; start several at once, they keep the promise together

    --naive           the counter-example: without lock and layer, which the judge must notice
    --naive=lock      without the lock only
    --naive=layer     without the idempotency layer only
    --period <name>   what the last scene's key is named after; default the present minute

Exit status: 0 promises kept, 1 a promise broken, 2 it couldn't run.";

/// The program's options.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) url: String,
    pub(crate) serve: bool,
    pub(crate) naive: Naive,
    pub(crate) period: String,
}

/// What the counter-example leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Naive {
    pub(crate) without_lock: bool,
    pub(crate) without_layer: bool,
}

impl Options {
    /// Reads them; `None` where help was asked for.
    pub(crate) fn read() -> anyhow::Result<Option<Self>> {
        // `memory:` alone is a store for each manager; the replicas share one, so it gets a name.
        let url = match env::var("DISTLOCK_URL") {
            Ok(url) if url == "memory:" => "memory:orders".to_owned(),
            Ok(url) => url,
            Err(env::VarError::NotPresent) => "memory:orders".to_owned(),
            Err(error) => return Err(error).context("DISTLOCK_URL"),
        };
        let mut options = Self { url, serve: false, naive: Naive::default(), period: present_minute()? };
        let mut arguments = env::args().skip(1);
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--help" | "-h" => return Ok(None),
                "--naive" => options.naive = Naive { without_lock: true, without_layer: true },
                "--naive=layer" => options.naive.without_layer = true,
                "--naive=lock" => options.naive.without_lock = true,
                "--period" => options.period = arguments.next().context("--period needs a name")?,
                "--serve" => options.serve = true,
                other => bail!("unknown argument {other}\n\n{USAGE}"),
            }
        }
        Ok(Some(options))
    }

    /// The store's URL without what is nobody's business.
    pub(crate) fn store(&self) -> String {
        let shown = self.url.split(['?', '#']).next().unwrap_or_default();
        match (shown.split_once("://"), shown.rsplit_once('@')) {
            (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
            _ => shown.to_owned(),
        }
    }
}

/// The wall clock names a period here, it decides about no lease.
fn present_minute() -> anyhow::Result<String> {
    let since: Duration = UNIX_EPOCH.elapsed().context("the clock is set to before 1970")?;
    Ok((since.as_secs() / 60).to_string())
}
