//! The places that scopes' quotas have given out.

use std::collections::HashMap;

use crate::backend::{Charge, RecordKey, RecordScope, Reservation, Reserved};
use crate::clock::Moment;

#[derive(Default)]
pub(super) struct Places {
    scopes: HashMap<RecordScope, HashMap<RecordKey, Place>>,
}

struct Place {
    until: Moment,
    bytes: u64,
}

impl Places {
    pub(super) fn reserve(&mut self, wanted: &Reservation, now: Moment) -> Reserved {
        let places = self.scopes.entry(wanted.scope).or_default();
        places.retain(|_, place| place.until > now);
        if !places.contains_key(&wanted.key) {
            let keys = places.len() as u64;
            let bytes = places.values().map(|place| place.bytes).fold(0, u64::saturating_add);
            if keys >= wanted.quota.keys || bytes >= wanted.quota.bytes {
                return Reserved::Full { keys, bytes };
            }
            places.insert(wanted.key, Place { until: now + wanted.hold, bytes: 0 });
        }
        Reserved::Granted
    }

    pub(super) fn charge(&mut self, charge: &Charge, now: Moment) {
        let Some(places) = self.scopes.get_mut(&charge.scope) else { return };
        if charge.retain.is_zero() {
            places.remove(&charge.key);
        } else if let Some(place) = places.get_mut(&charge.key) {
            *place = Place { until: now + charge.retain, bytes: charge.bytes };
        }
        if places.is_empty() {
            self.scopes.remove(&charge.scope);
        }
    }
}
