//! The device's ledger as counters.

use device::WriteCause;

use super::Inner;
use crate::StoreCounter;

impl Inner {
    pub(super) fn counters(&self) -> Vec<StoreCounter> {
        let ledger = self.device.ledger();
        let number =
            |name: &str, is_bytes, value| StoreCounter { name: name.to_owned(), is_bytes, value };
        let mut counters: Vec<StoreCounter> = WriteCause::ALL
            .into_iter()
            // Those behind are of stores on databases.
            .filter(|cause| *cause <= WriteCause::Superblock)
            .map(|cause| number(&format!("written_{}", cause.name()), true, ledger.written(cause)))
            .collect();
        counters.extend([
            number("written", true, ledger.written_total()),
            number("writes", false, ledger.writes()),
            number("read", true, ledger.read()),
            number("reads", false, ledger.reads()),
            number("syncs", false, ledger.syncs()),
            number("discarded", true, ledger.discarded()),
            number("cache_hit", true, self.core.borrow().cache.borrow().hit),
        ]);
        counters
    }
}
