//! In which order what this process has comes to its end, and when that is looked at next.

use std::collections::BTreeSet;

use crate::clock::Moment;
use crate::token::OwnerToken;

#[derive(Debug, Default)]
pub(super) struct Agenda {
    ends: BTreeSet<(Moment, OwnerToken)>,
    /// When the next look is; `None` if there is no reason for any.
    planned: Option<Moment>,
}

impl Agenda {
    /// An end is another now, or none. True if it comes before the next look that was planned.
    pub(super) fn moved(&mut self, owner: OwnerToken, before: Option<Moment>, after: Option<Moment>) -> bool {
        if let Some(before) = before {
            self.ends.remove(&(before, owner));
        }
        let Some(after) = after else { return false };
        self.ends.insert((after, owner));
        let is_sooner = self.planned.is_none_or(|planned| after < planned);
        if is_sooner {
            self.planned = Some(after);
        }
        is_sooner
    }

    /// Takes out one that is over by now.
    pub(super) fn pop_due(&mut self, now: Moment) -> Option<OwnerToken> {
        let (end, _) = self.ends.first()?;
        if *end > now {
            return None;
        }
        self.ends.pop_first().map(|(_, owner)| owner)
    }

    /// When to look next: at the first end.
    pub(super) fn plan(&mut self) -> Option<Moment> {
        self.planned = self.ends.first().map(|(end, _)| *end);
        self.planned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_end_before_the_next_look_is_told() {
        let owner = |number: u8| OwnerToken::from_hex(&format!("{number:032x}")).unwrap();
        let at = Moment::from_nanos;
        let mut agenda = Agenda::default();
        assert!(agenda.moved(owner(1), None, Some(at(30))), "there was no look to come");
        assert!(!agenda.moved(owner(2), None, Some(at(40))));
        assert!(agenda.moved(owner(3), None, Some(at(20))));
        assert!(!agenda.moved(owner(3), Some(at(20)), None), "then it is looked at in vain");
        assert!(!agenda.moved(owner(4), None, Some(at(25))), "in time all the same");
        assert_eq!(agenda.pop_due(at(24)), None);
        assert_eq!(agenda.plan(), Some(at(25)));
        assert_eq!((agenda.pop_due(at(30)), agenda.pop_due(at(30))), (Some(owner(4)), Some(owner(1))));
        assert_eq!((agenda.pop_due(at(30)), agenda.plan()), (None, Some(at(40))));
        assert!(!agenda.moved(owner(2), Some(at(40)), None));
        assert_eq!(agenda.plan(), None);
        assert!(agenda.moved(owner(5), None, Some(at(99))));
    }
}
