//! The statements, with the schema's name in its place.

use std::sync::Arc;

use super::connection::{Connections, Hot, Several};

/// Those of the advisory locks.
#[derive(Debug)]
pub(super) struct AdvisoryStatements {
    pub(super) acquire: Hot,
    pub(super) renew: String,
    pub(super) keep: String,
    pub(super) release: Hot,
    pub(super) state: String,
    pub(super) list: String,
}

impl AdvisoryStatements {
    pub(super) fn new(connections: &Connections) -> Self {
        let sql = |text| connections.sql(text);
        Self {
            acquire: Hot::new(
                sql("select outcome, token, holder, holder_label, remaining from distlock.advisory_acquire(\
                     $1, $2, $3, $4, $5, $6, $7)"),
                7,
            ),
            renew: sql("select distlock.advisory_renew($1, $2, $3, $4, $5)"),
            keep: sql("select distlock.advisory_keep($1, $2, $3, $4, $5)"),
            release: Hot::new(sql("select distlock.advisory_release($1, $2, $3, $4)"), 4),
            state: sql("select * from distlock.advisory_state($1, $2, $3)"),
            list: sql("select s.* from (select array_agg(h.name) as names, array_agg(h.key) as keys \
                 from distlock.holder h where h.namespace = $1 and h.name ^@ $2 and h.owner <> '') k, \
                 distlock.advisory_state($1, k.names, k.keys) s where s.held limit $3"),
        }
    }
}

/// Each calls one function of the migration. The casts say which function is meant, whatever else has its name.
#[derive(Debug)]
pub(super) struct Statements {
    /// For one exclusive hold.
    pub(super) acquire_plain: Hot,
    pub(super) acquire: String,
    pub(super) acquire_all: String,
    pub(super) renew: String,
    /// Without keeping it.
    pub(super) release_plain: Hot,
    pub(super) release: String,
    pub(super) several: Arc<Several>,
    pub(super) cancel: String,
    pub(super) force_release: String,
    pub(super) convert: String,
    pub(super) resize: String,
    pub(super) state: String,
    pub(super) list: String,
    pub(super) latch: String,
    pub(super) publish_wait: String,
    pub(super) withdraw_wait: String,
    pub(super) waits: String,
    pub(super) purge: String,
}

impl Statements {
    pub(super) fn new(connections: &Connections, label: &str) -> Self {
        let sql = |text| connections.sql(text);
        let hot = |text, parameters| Hot::new(connections.sql(text), parameters);
        Self {
            acquire_plain: hot(
                "select outcome, token, holder, holder_label, remaining from distlock.acquire_plain(\
                 $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
                11,
            ),
            release_plain: hot("select distlock.release_plain($1, $2, $3)", 3),
            several: Arc::new(Several::new(hot("select distlock.several($1, $2, $3, $4, $5)", 5), label)),
            acquire: sql("select outcome, token, holder, holder_label, remaining from distlock.acquire(\
                 $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)"),
            acquire_all: sql(
                "select outcome, token, holder, holder_label, remaining, place from distlock.acquire_all(\
                 $1, $2, $3, $4, $5) order by place",
            ),
            renew: sql("select * from distlock.renew($1, $2, $3, $4)"),
            release: sql("select distlock.release($1, $2, $3, $4)"),
            // As a row without columns: a function without a result gives a type that nobody needs to know.
            cancel: sql("select from distlock.cancel($1, $2, $3, $4)"),
            force_release: sql(
                "select outcome, holder, holder_label, weight, remaining from distlock.force_release($1, $2)",
            ),
            convert: sql("select outcome, token, holder, holder_label, remaining from distlock.convert(\
                 $1, $2, $3, $4, $5)"),
            resize: sql("select distlock.resize($1, $2, $3)"),
            state: sql("select * from distlock.state($1, $2, $3)"),
            list: sql("select s.* from distlock.state($1, array(\
                 select distinct l.name from distlock.held l \
                 where l.namespace = $1 and l.name ^@ $2 and l.expires_at > clock_timestamp() limit $3), $4) s"),
            latch: sql(
                "select outcome, remaining from distlock.latch($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
            ),
            publish_wait: sql("select from distlock.publish_wait($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"),
            withdraw_wait: sql(
                "delete from distlock.wait w using unnest($1::text[], $2::text[]) as k(namespace, name) \
                 where w.namespace = k.namespace and w.name = k.name and w.id = $3",
            ),
            waits: sql("select w.id, w.beat, w.owner, w.wanted_raw, w.wanted, w.who from distlock.wait w \
                 join distlock.held l on l.namespace = w.namespace and l.name = w.name and l.owner = w.owner \
                 where w.namespace = $1 and w.name = $2 and w.expires_at > clock_timestamp() \
                 and l.expires_at > clock_timestamp()"),
            purge: sql("select distlock.purge_locks($1, $2)"),
        }
    }
}
