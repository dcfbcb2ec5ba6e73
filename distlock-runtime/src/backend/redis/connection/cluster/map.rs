//! Which server of a Cluster serves which slot.

use std::collections::HashMap;
use std::sync::Arc;

use redis::Value;

use super::Node;
use super::redirection::Place;
use crate::backend::redis::slot::SLOTS;

const NOBODY: u16 = u16::MAX;

/// One state of the Cluster, as some server told it.
#[derive(Debug)]
pub(super) struct Map {
    /// For each slot, the index of its server.
    table: Box<[u16]>,
    primaries: Vec<Arc<Node>>,
    replicas: Vec<Place>,
    /// Counts on with each change of the Cluster's state; a server that is behind the others has a smaller one.
    pub(super) epoch: u64,
}

impl Map {
    /// Before anybody was asked.
    pub(super) fn empty() -> Self {
        Self { table: vec![NOBODY; SLOTS].into(), primaries: Vec::new(), replicas: Vec::new(), epoch: 0 }
    }

    /// From ranges of slots, and the server that each is served by.
    pub(super) fn new(ranges: Vec<Range>, epoch: u64, mut node: impl FnMut(&Place) -> Arc<Node>) -> Self {
        let mut map = Self { epoch, ..Self::empty() };
        let mut known: HashMap<Place, u16> = HashMap::new();
        for Range { first, last, primary, replicas } in ranges {
            let index = *known.entry(primary).or_insert_with_key(|place| {
                map.primaries.push(node(place));
                u16::try_from(map.primaries.len() - 1).expect("at most one a slot")
            });
            map.table[usize::from(first)..=usize::from(last)].fill(index);
            map.replicas.extend(replicas);
        }
        map.replicas.sort_unstable_by(|one, other| (&one.host, one.port).cmp(&(&other.host, other.port)));
        map.replicas.dedup();
        map
    }

    pub(super) fn is_empty(&self) -> bool {
        self.primaries.is_empty()
    }

    /// Whether each slot is where it is in the other.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let same = |(one, other): (&Arc<Node>, &Arc<Node>)| Arc::ptr_eq(one, other);
        self.table == other.table
            && self.primaries.len() == other.primaries.len()
            && self.primaries.iter().zip(&other.primaries).all(same)
    }

    /// The server of a slot.
    pub(super) fn node(&self, slot: u16) -> Option<&Arc<Node>> {
        self.primaries.get(usize::from(*self.table.get(usize::from(slot))?))
    }

    pub(super) fn primaries(&self) -> &[Arc<Node>] {
        &self.primaries
    }

    pub(super) fn replicas(&self) -> &[Place] {
        &self.replicas
    }

    /// One of the slots that this server serves.
    pub(super) fn slot_of(&self, node: &Arc<Node>) -> Option<u16> {
        let index = self.primaries.iter().position(|other| Arc::ptr_eq(other, node))?;
        let slot = self.table.iter().position(|server| usize::from(*server) == index)?;
        u16::try_from(slot).ok()
    }

    /// The same but for one slot, that is another server's.
    pub(super) fn with(&self, slot: u16, node: &Arc<Node>) -> Self {
        let mut primaries = self.primaries.clone();
        let index = primaries.iter().position(|other| Arc::ptr_eq(other, node)).unwrap_or_else(|| {
            primaries.push(Arc::clone(node));
            primaries.len() - 1
        });
        let mut table = self.table.clone();
        table[usize::from(slot)] = u16::try_from(index).expect("at most one a slot");
        Self { table, primaries, replicas: self.replicas.clone(), epoch: self.epoch }
    }
}

/// A part of a reply to `CLUSTER SLOTS`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Range {
    first: u16,
    last: u16,
    primary: Place,
    replicas: Vec<Place>,
}

/// The reply to `CLUSTER SLOTS` of a server at `asked`; `None` if it is of another form.
pub(super) fn ranges(reply: &Value, asked: &str) -> Option<Vec<Range>> {
    let Value::Array(ranges) = reply else { return None };
    let range = |range: &Value| {
        let Value::Array(parts) = range else { return None };
        let [Value::Int(first), Value::Int(last), servers @ ..] = parts.as_slice() else { return None };
        let bound = |slot: &i64| u16::try_from(*slot).ok().filter(|slot| usize::from(*slot) < SLOTS);
        let mut places = servers.iter().map(|server| place(server, asked));
        let (first, last, primary) = (bound(first)?, bound(last)?, places.next()??);
        // A replica whose place nobody knows is none to ask.
        (first <= last).then(|| Range { first, last, primary, replicas: places.flatten().collect() })
    };
    ranges.iter().map(range).collect()
}

/// A server that doesn't know its own host gives none: then it is the one that was asked.
fn place(server: &Value, asked: &str) -> Option<Place> {
    let Value::Array(parts) = server else { return None };
    let [host, Value::Int(port), ..] = parts.as_slice() else { return None };
    let host = match host {
        Value::BulkString(host) => std::str::from_utf8(host).ok()?,
        Value::SimpleString(host) => host,
        Value::Nil => "",
        _ => return None,
    };
    let port = u16::try_from(*port).ok().filter(|port| *port > 0)?;
    match host {
        "?" => None,
        "" => Some(Place { host: asked.to_owned(), port }),
        host => Some(Place { host: host.to_owned(), port }),
    }
}

/// From what `CLUSTER INFO` tells; 0 if it tells nothing.
pub(super) fn epoch(info: &Value) -> u64 {
    let text = redis::from_redis_value::<String>(info.clone()).unwrap_or_default();
    let epoch = text.lines().find_map(|line| line.strip_prefix("cluster_current_epoch:"));
    epoch.and_then(|epoch| epoch.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Dialer, Login, Route};
    use super::*;
    use crate::clock::Clock;

    #[test]
    fn slots_have_their_servers_and_one_may_move() {
        let at = |host: &str| Place { host: host.to_owned(), port: 1 };
        let node = |place: &Place| {
            let info =
                redis::IntoConnectionInfo::into_connection_info((place.host.as_str(), place.port)).unwrap();
            let route = Route::Server(Box::new(info));
            let dialer = Dialer::new(
                route,
                place.host.clone(),
                Duration::from_secs(1),
                Clock::System,
                Login::default(),
                false,
            );
            Arc::new(Node::new(dialer, Clock::System))
        };
        let range = |first, last, host| Range { first, last, primary: at(host), replicas: vec![at("r")] };
        let map = Map::new(vec![range(0, 9, "a"), range(10, 19, "b"), range(20, 29, "a")], 7, node);
        let server = |map: &Map, slot| map.node(slot).map(|node| node.address().to_owned());
        let served = [0, 9, 10, 20, 29, 30, 16_383].map(|slot| server(&map, slot));
        let expected = [Some("a"), Some("a"), Some("b"), Some("a"), Some("a"), None, None];
        assert_eq!(served, expected.map(|server| server.map(str::to_owned)));
        assert_eq!((map.primaries().len(), map.replicas()), (2, &[at("r")][..]));
        assert_eq!(map.slot_of(map.node(10).unwrap()), Some(10));

        let newcomer = node(&at("c"));
        let moved = map.with(9, &newcomer).with(30, map.node(10).unwrap());
        assert_eq!([8, 9, 10, 30].map(|slot| server(&moved, slot).unwrap()), ["a", "c", "b", "b"]);
        assert_eq!((moved.primaries().len(), moved.epoch), (3, 7));
        assert_eq!((moved.slot_of(&newcomer), map.slot_of(&newcomer)), (Some(9), None));
        assert!(!map.is_like(&moved) && map.is_like(&map.with(0, map.node(29).unwrap())));
        assert!(Map::empty().is_empty() && Map::empty().node(0).is_none());
    }

    fn server(host: &str, port: i64) -> Value {
        Value::Array(vec![
            Value::BulkString(host.into()),
            Value::Int(port),
            Value::BulkString(b"id".to_vec()),
        ])
    }

    fn range(first: i64, last: i64, servers: Vec<Value>) -> Value {
        Value::Array([vec![Value::Int(first), Value::Int(last)], servers].concat())
    }

    #[test]
    fn replies_are_read_and_nonsense_is_none() {
        let at = |host: &str, port| Place { host: host.to_owned(), port };
        let reply = Value::Array(vec![
            range(0, 5, vec![server("a", 1), server("b", 2), server("?", 3)]),
            range(6, 16_383, vec![server("", 4)]),
        ]);
        let expected = [
            Range { first: 0, last: 5, primary: at("a", 1), replicas: vec![at("b", 2)] },
            Range { first: 6, last: 16_383, primary: at("asked", 4), replicas: Vec::new() },
        ];
        assert_eq!(ranges(&reply, "asked").unwrap(), expected);
        for nonsense in [
            Value::Nil,
            Value::Array(vec![Value::Nil]),
            Value::Array(vec![range(0, 16_384, vec![server("a", 1)])]),
            Value::Array(vec![range(-1, 5, vec![server("a", 1)])]),
            Value::Array(vec![range(6, 5, vec![server("a", 1)])]),
            Value::Array(vec![range(0, 5, Vec::new())]),
            Value::Array(vec![range(0, 5, vec![server("a", 0)])]),
        ] {
            assert_eq!(ranges(&nonsense, "asked"), None, "{nonsense:?}");
        }
        let info = "cluster_state:ok\r\ncluster_current_epoch:17\r\ncluster_my_epoch:3\r\n";
        assert_eq!(epoch(&Value::BulkString(info.into())), 17);
        assert_eq!(epoch(&Value::Nil), 0);
    }
}
