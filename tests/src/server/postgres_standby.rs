//! A standby that streams what its primary writes, and may take its place.

use std::{fs, fs::OpenOptions, io::Write as _, time::Duration};

use anyhow::{Context, bail};

use super::{
    account,
    postgres::{PostgresOptions, PostgresServer, data, program},
};
use crate::wait;

const LIMIT: Duration = Duration::from_secs(30);

impl PostgresServer {
    /// A copy of this server that goes on reading what this one writes, and waits until it is connected. This one waits for it at
    /// every commit if its setting `synchronous_standby_names` has the name, else the standby lags behind.
    ///
    /// # Errors
    /// As [`start`](Self::start), and when it doesn't connect within 30 s.
    pub async fn standby(&self, name: &str, options: PostgresOptions) -> anyhow::Result<Self> {
        let folder =
            tempfile::Builder::new().prefix("distlock-postgres-").tempdir().context("make a folder")?;
        let data = data(folder.path());
        fs::create_dir(&data)?;
        account::give("postgres", &data, 0o700)?;
        account::open_up(folder.path())?;
        let mut copy = account::command("postgres", program("pg_basebackup")?);
        copy.args(["-h", "127.0.0.1", "-p", &self.port().to_string(), "-U", "postgres"]);
        copy.args(["-X", "stream", "-c", "fast", "--no-sync", "-D"]).arg(&data);
        let output = copy.current_dir("/").output().context("run pg_basebackup")?;
        if !output.status.success() {
            bail!("pg_basebackup: {}", String::from_utf8_lossy(&output.stderr));
        }
        let (signal, settings) = (data.join("standby.signal"), data.join("postgresql.auto.conf"));
        fs::write(&signal, "")?;
        account::give("postgres", &signal, 0o600)?;
        // In this file, so that `hold_back` can change it.
        writeln!(
            OpenOptions::new().append(true).open(settings)?,
            "primary_conninfo = 'host=127.0.0.1 port={} user=postgres application_name={name}'",
            self.port()
        )?;
        let standby = Self::on(folder, None, options)?;
        let admin = self.admin().await?;
        let sql =
            "select count(*) from pg_stat_replication where application_name = $1 and state = 'streaming'";
        wait::until("the standby to stream", LIMIT, async || {
            let row = admin.query_one(sql, &[&name]).await.ok()?;
            (row.get::<_, i64>(0) > 0).then_some(())
        })
        .await?;
        Ok(standby)
    }

    /// Waits until this standby has all that the primary has committed until now (not with `synchronous_commit=off`).
    ///
    /// # Errors
    /// When one of them can't be asked, or the standby doesn't get there within 30 s.
    pub async fn catch_up(&self, primary: &Self) -> anyhow::Result<()> {
        let written: String =
            primary.admin().await?.query_one("select pg_current_wal_flush_lsn()::text", &[]).await?.get(0);
        let admin = self.admin().await?;
        let sql = "select pg_last_wal_replay_lsn() >= $1::text::pg_lsn";
        wait::until("the standby to catch up", LIMIT, async || {
            let row = admin.query_one(sql, &[&written]).await.ok()?;
            row.get::<_, Option<bool>>(0)?.then_some(())
        })
        .await
    }

    /// From now on this standby gets nothing more.
    ///
    /// # Errors
    /// When it can't be asked, or goes on streaming for 30 s.
    pub async fn hold_back(&self) -> anyhow::Result<()> {
        let admin = self.admin().await?;
        admin.execute("alter system set primary_conninfo = ''", &[]).await?;
        admin.execute("select pg_reload_conf()", &[]).await?;
        wait::until("the standby to stop streaming", LIMIT, async || {
            let row = admin
                .query_one("select count(*) from pg_stat_get_wal_receiver() r where r.pid is not null", &[]);
            (row.await.ok()?.get::<_, i64>(0) == 0).then_some(())
        })
        .await
    }

    /// Makes this standby a primary, and waits until it takes writes. The old one isn't told.
    ///
    /// # Errors
    /// When it isn't one within 30 s.
    pub async fn promote(&self) -> anyhow::Result<()> {
        let promoted = self.admin().await?.query_one("select pg_promote(true, 30)", &[]).await?;
        anyhow::ensure!(promoted.get::<_, bool>(0), "the standby wasn't promoted in time");
        Ok(())
    }
}
