//! Who waits, in order of arrival. A word of memory where nobody does, which is most keys.

use std::collections::VecDeque;

#[derive(Debug)]
#[allow(clippy::box_collection, reason = "an empty deque is four words")]
pub(super) struct Line<T>(Option<Box<VecDeque<T>>>);

impl<T> Line<T> {
    pub(super) fn new() -> Self {
        Self(None)
    }

    pub(super) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |line| line.len())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn front(&self) -> Option<&T> {
        self.0.as_ref()?.front()
    }

    pub(super) fn back(&self) -> Option<&T> {
        self.0.as_ref()?.back()
    }

    pub(super) fn push_back(&mut self, waiter: T) {
        self.0.get_or_insert_default().push_back(waiter);
    }

    pub(super) fn pop_front(&mut self) -> Option<T> {
        self.0.as_mut()?.pop_front()
    }

    /// Those between the first ones, for which `before` holds, and the last ones, for which `until` doesn't.
    pub(super) fn between(
        &mut self,
        before: impl Fn(&T) -> bool,
        until: impl Fn(&T) -> bool,
    ) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().flat_map(move |line| {
            let (start, end) = (line.partition_point(&before), line.partition_point(&until));
            line.range_mut(start..end.max(start))
        })
    }

    /// Takes away the first for which this holds. True if there was one.
    pub(super) fn take_out(&mut self, is_it: impl FnMut(&T) -> bool) -> bool {
        let Some(line) = &mut self.0 else { return false };
        line.iter().position(is_it).and_then(|place| line.remove(place)).is_some()
    }

    pub(super) fn clear(&mut self) {
        self.0 = None;
    }
}
