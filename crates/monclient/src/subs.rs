//! Subscriptions: what was asked for, and from which version on (src/mon/MonSub.cc at v16.2).

use std::collections::BTreeMap;

use messages::{SUBSCRIBE_ONETIME, SubscribeItem};

/// Wishes by map name. `new` has not been sent in this session, `sent` has.
#[derive(Debug, Default)]
pub(crate) struct Subs {
    new: BTreeMap<String, SubscribeItem>,
    sent: BTreeMap<String, SubscribeItem>,
}

impl Subs {
    /// Wants a map from version `start` on; whether that is news.
    pub(crate) fn want(&mut self, what: &str, start: u64, flags: u8) -> bool {
        let item = SubscribeItem { start, flags };
        let known = self.new.get(what).or_else(|| self.sent.get(what));
        if known == Some(&item) {
            return false;
        }
        self.new.insert(what.to_owned(), item);
        true
    }

    /// Does not want it any more.
    pub(crate) fn unwant(&mut self, what: &str) {
        self.new.remove(what);
        self.sent.remove(what);
    }

    /// Version `have` has come.
    pub(crate) fn got(&mut self, what: &str, have: u64) {
        for items in [&mut self.new, &mut self.sent] {
            let Some(item) = items.get_mut(what) else { continue };
            if item.start > have {
                return;
            }
            if item.flags & SUBSCRIBE_ONETIME != 0 {
                items.remove(what);
            } else {
                item.start = have + 1;
            }
            return;
        }
    }

    /// What a session has to be told now.
    pub(crate) fn take_new(&mut self) -> BTreeMap<String, SubscribeItem> {
        let new = core::mem::take(&mut self.new);
        self.sent.extend(new.clone());
        new
    }

    /// A new session: everything has to be told again.
    pub(crate) fn restart(&mut self) {
        let mut all = core::mem::take(&mut self.sent);
        all.append(&mut self.new);
        self.new = all;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_move_with_what_comes() {
        let mut subs = Subs::default();
        assert!(subs.want("osdmap", 5, SUBSCRIBE_ONETIME) && subs.want("monmap", 0, 0));
        assert!(!subs.want("monmap", 0, 0));
        assert_eq!(subs.take_new().len(), 2);
        assert!(subs.take_new().is_empty());
        subs.got("osdmap", 4);
        subs.got("monmap", 7);
        subs.restart();
        let again = subs.take_new();
        assert_eq!(again["monmap"].start, 8);
        assert_eq!(again["osdmap"].start, 5);
        subs.got("osdmap", 6);
        subs.restart();
        assert!(!subs.take_new().contains_key("osdmap"));
    }
}
