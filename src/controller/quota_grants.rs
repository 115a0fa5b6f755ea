//! What a quota has allowed in this process, which the status of a group may not record yet.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::boundaries::{QuotaAmounts, QuotaClaim, QuotaRequest};

/// What is allowed, by the `namespace/name` of the group.
#[derive(Default)]
pub(crate) struct QuotaGrants(Mutex<AmountsByGroup>);

/// What is allowed to each group.
pub(crate) type AmountsByGroup = HashMap<String, QuotaAmounts>;

impl QuotaGrants {
    /// Decides a request of the group `key`, and remembers it if `decide` allows it. Decisions are serialized: of two
    /// groups that are reconciled at the same time, the second sees what the first was allowed.
    pub(crate) fn decide(
        &self,
        key: &str,
        decide: impl FnOnce(&AmountsByGroup) -> (QuotaRequest, bool),
    ) -> QuotaRequest {
        let mut granted = self.0.lock().expect("lock is not poisoned");
        let (request, is_allowed) = decide(&granted);
        if is_allowed {
            granted.insert(key.to_owned(), request.requested);
        }
        request
    }

    /// A request as `decide` would decide it now. Nothing is remembered.
    pub(crate) fn preview(&self, decide: impl FnOnce(&AmountsByGroup) -> (QuotaRequest, bool)) -> QuotaRequest {
        decide(&self.0.lock().expect("lock is not poisoned")).0
    }

    /// Forgets a deleted group.
    pub(crate) fn forget(&self, key: &str) {
        self.0.lock().expect("lock is not poisoned").remove(key);
    }
}

/// A claim with what this process has allowed to the group since.
pub(crate) fn with_grant(claim: QuotaClaim, granted: Option<&QuotaAmounts>) -> QuotaClaim {
    match granted {
        Some(granted) => QuotaClaim { exists: true, used: claim.used.max(*granted), ..claim },
        None => claim,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};
    use std::thread;

    use super::*;
    use crate::boundaries::NamespaceUsage;

    fn nodes(nodes: u64) -> QuotaAmounts {
        QuotaAmounts { nodes, ..QuotaAmounts::default() }
    }

    /// Each of two new groups fits into the quota alone. Neither status records anything yet, and none is older.
    #[test]
    fn of_two_simultaneous_groups_only_one_fits_the_quota() {
        for _ in 0..100 {
            let (grants, start) = (Arc::new(QuotaGrants::default()), Arc::new(Barrier::new(2)));
            let create = |own: &'static str, other: &'static str| {
                let (grants, start) = (grants.clone(), start.clone());
                thread::spawn(move || {
                    start.wait();
                    let request = grants.decide(own, |granted| {
                        let claim = QuotaClaim { requested: nodes(6), ..QuotaClaim::default() };
                        let used = [other, own].map(|key| with_grant(QuotaClaim::default(), granted.get(key)));
                        let request = NamespaceUsage::sum(used.into_iter()).request(claim);
                        (request, request.usage.amounts.nodes <= 10)
                    });
                    request.usage.amounts.nodes <= 10
                })
            };
            let both = [create("team/a", "team/b"), create("team/b", "team/a")];
            let allowed = both.map(|worker| worker.join().expect("a decision"));
            assert_eq!(allowed.iter().filter(|allowed| **allowed).count(), 1);
        }
    }

    #[test]
    fn deleted_group_frees_its_quota() {
        let grants = QuotaGrants::default();
        let request = |count| QuotaRequest { requested: nodes(count), ..QuotaRequest::default() };
        grants.decide("team/a", |_| (request(3), true));
        grants.decide("team/b", |granted| {
            assert_eq!(granted.get("team/a"), Some(&nodes(3)));
            (request(9), false)
        });
        grants.forget("team/a");
        grants.decide("team/b", |granted| {
            assert!(granted.is_empty(), "a refused request is not remembered");
            (request(9), false)
        });
    }
}
