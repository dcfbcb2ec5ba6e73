//! Many tasks, one key, nothing done inside.

use std::sync::Arc;
use std::time::Duration;

use super::record::Record;
use super::{KEY, step};
use crate::contender::Contender;
use crate::job::{Figures, Job, Work};
use crate::stats::now;

pub(super) async fn run<C: Contender>(job: &Job, contender: C) -> anyhow::Result<Figures> {
    if job.work == Work::Contend {
        contender.section(&format!("bench:warm:{}", job.process), || ()).await?;
    }
    step("ready").await?;
    let contender = Arc::new(contender);
    let record = Arc::new(Record::new(job.tasks, job.work == Work::Contend, job.log.is_some()));
    let start = now();
    for task in 0..job.tasks {
        let (contender, record) = (Arc::clone(&contender), Arc::clone(&record));
        tokio::spawn(async move {
            loop {
                // A peer gives up now and then; it tries again, and the count shows it.
                let _ = contender.section(KEY, || record.enter(task)).await;
            }
        });
    }
    tokio::time::sleep(Duration::from_secs_f64(job.seconds)).await;
    record.close((now() - start) as f64 / 1e9, job.log.as_deref())
}
