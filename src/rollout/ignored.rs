//! What has no effect on a rollout, for an admin: orders about waves that it does not have, or about groups
//! that do not exist, and waves without groups.

use super::summary::GroupSummary;
use super::view::RolloutView;
use crate::api::RolloutOrders;
use crate::util::text::shorten;

/// The longest list of groups in a sentence, in characters.
const MAX_LIST: usize = 300;

/// One sentence for each order about a wave that is not one of `waves`.
pub(crate) fn unknown_waves(orders: &RolloutOrders, waves: &[&str]) -> Vec<String> {
    let mut found = vec![];
    for (order, names) in [("approved", &orders.approved), ("skipped", &orders.skipped)] {
        let unknown = names.iter().filter(|name| *name != "*" && !waves.contains(&name.as_str()));
        found.extend(unknown.map(|name| {
            let known = waves.join(", ");
            format!("spec.orders.{order} names the wave {name}, which the rollout does not have; it has {known}")
        }));
    }
    found
}

/// A sentence about the groups that an order leaves out and that do not exist; `None` without one.
pub(crate) fn unknown_groups(orders: &RolloutOrders, exists: impl Fn(&str) -> bool) -> Option<String> {
    let unknown: Vec<&str> = orders.without.iter().map(String::as_str).filter(|key| !exists(key)).collect();
    (!unknown.is_empty()).then(|| {
        let list = shorten(&unknown.join(", "), MAX_LIST);
        format!("spec.orders.without leaves out groups that do not exist: {list}; write each as NAMESPACE/NAME")
    })
}

/// Whether the waves of all groups are known.
pub(crate) fn knows_all_groups(summary: &GroupSummary) -> bool {
    summary.unseen == 0 && !summary.has_undecodable
}

/// One sentence for each wave whose selectors match no group of the cluster. The last one takes all groups that are left.
pub(crate) fn empty_waves(view: &RolloutView, summary: &GroupSummary) -> Vec<String> {
    // Groups that are not known yet could be in it.
    if !knows_all_groups(summary) || !summary.matched.contains(&true) {
        return vec![];
    }
    let last = view.policy.waves.len() - 1;
    let waves = view.policy.waves.iter().zip(&summary.matched);
    let empty = waves.take(last).filter(|(_, is_matched)| !**is_matched);
    let describe = |name: &str| {
        format!(
            "rollout: the selectors of wave {name} match no group of this cluster; correct them, or remove the wave"
        )
    };
    empty.map(|(wave, _)| describe(&wave.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A user who approves by `kubectl patch` would wait for a wave that never opens.
    #[test]
    fn orders_about_unknown_waves_are_named() {
        let orders = |approved: &[&str], skipped: &[&str]| RolloutOrders {
            approved: approved.iter().map(|name| (*name).to_owned()).collect(),
            skipped: skipped.iter().map(|name| (*name).to_owned()).collect(),
            ..RolloutOrders::default()
        };
        let waves = ["canary", "rest"];
        assert_eq!(unknown_waves(&orders(&["rest", "*"], &["canary", "*"]), &waves), [""; 0]);
        let found = unknown_waves(&orders(&["general", "rest"], &["canry"]), &waves);
        let [approved, skipped] = found.try_into().expect("two sentences");
        assert!(approved.contains("orders.approved names the wave general") && approved.ends_with("canary, rest"));
        assert!(skipped.contains("orders.skipped names the wave canry"), "{skipped}");
    }

    /// The misspelled group would have its nodes replaced, although a user left it out.
    #[test]
    fn orders_about_unknown_groups_are_named() {
        let without = |keys: &[&str]| {
            let without = keys.iter().map(|key| (*key).to_owned()).collect();
            unknown_groups(&RolloutOrders { without, ..RolloutOrders::default() }, |key| key == "team/web")
        };
        assert_eq!((without(&[]), without(&["team/web"])), (None, None));
        let found = without(&["team/web", "web", "team/wbe"]).expect("a sentence");
        assert!(found.contains("orders.without leaves out groups that do not exist: web, team/wbe; write"), "{found}");
    }
}
