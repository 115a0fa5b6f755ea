//! Why instances in service have no Ready node, since when, and what to do about each case.

use jiff::{SignedDuration, Timestamp};

use super::members::NodeInstance;
use crate::api::rfc3339;
use crate::aws::InstanceState;
use crate::util::duration;

/// How many instances a message names.
const MAX_NAMED: usize = 5;

/// Why an instance in service has no Ready node.
#[derive(Clone, Debug, PartialEq)]
enum UnreadyCause<'a> {
    /// It has not joined since it entered service.
    NotJoined,
    /// It has no Node. It was in service before the first observation by this process, so it may have had one.
    NoNode,
    /// Its Node was deleted.
    NodeGone { node: &'a str },
    /// Its Node has never been Ready.
    NeverReady { node: &'a str, reason: Option<&'a str> },
    /// Its Node was Ready, and its kubelet no longer reports.
    Silent { node: &'a str },
    /// Its Node was Ready, and its kubelet reports that it no longer is.
    NotReady { node: &'a str, reason: Option<&'a str> },
}

impl<'a> UnreadyCause<'a> {
    /// Why the member is not Ready, and since when. `None` for a Ready node and for an instance that is not in service.
    fn find(member: &'a NodeInstance) -> Option<(Self, Option<Timestamp>)> {
        if member.instance.state != InstanceState::InService || member.is_ready() {
            return None;
        }
        let in_service = member.instance.in_service_since;
        Some(match (&member.node, &member.lost_node) {
            (Some(node), _) if node.has_become_unready() => {
                let (name, reason) = (node.name.as_str(), node.ready_reason.as_deref());
                let absence = if node.kubelet_silent {
                    UnreadyCause::Silent { node: name }
                } else {
                    UnreadyCause::NotReady { node: name, reason }
                };
                (absence, node.ready_changed_at)
            }
            (Some(node), _) => {
                (UnreadyCause::NeverReady { node: &node.name, reason: node.ready_reason.as_deref() }, in_service)
            }
            (None, Some(lost)) => (UnreadyCause::NodeGone { node: &lost.name }, Some(lost.since)),
            (None, None) if member.instance.was_in_service => (UnreadyCause::NoNode, in_service),
            (None, None) => (UnreadyCause::NotJoined, in_service),
        })
    }

    /// What is wrong with an instance, as a sentence with the time since when.
    fn describe(&self, instance: &str, since: Option<Timestamp>) -> String {
        let since = since.map_or_else(String::new, |at| format!(" since {}", rfc3339(at)));
        let because = |reason: &Option<&str>| reason.map_or_else(String::new, |reason| format!(" ({reason})"));
        match self {
            UnreadyCause::NotJoined => format!("{instance} (no Node) has been in service{since} and has not joined"),
            UnreadyCause::NoNode => format!("{instance} has had no Node{since}"),
            UnreadyCause::NodeGone { node } => format!("{instance} has had no Node{since}, when {node} was deleted"),
            UnreadyCause::NeverReady { node, reason } => {
                format!("{node} ({instance}) has joined and is not Ready{}, in service{since}", because(reason))
            }
            UnreadyCause::Silent { node } => {
                format!("{node} ({instance}) was Ready, and its kubelet has been silent{since}")
            }
            UnreadyCause::NotReady { node, reason } => {
                format!("{node} ({instance}) was Ready and has been NotReady{since}{}", because(reason))
            }
        }
    }

    /// What to do about it. `entry` is what authorizes the node to join.
    fn remedy(&self, entry: &str) -> String {
        match self {
            UnreadyCause::NotJoined => {
                format!("check the image, the user data, {entry}, the security groups and the routes to the API server")
            }
            UnreadyCause::NoNode => format!(
                "if it served before, restart its kubelet or terminate it, and Auto Scaling replaces it; otherwise check the image, the user data, {entry}, the security groups and the routes to the API server"
            ),
            UnreadyCause::NodeGone { .. } => {
                "restart the kubelet, or terminate the instance so that Auto Scaling replaces it".into()
            }
            UnreadyCause::NeverReady { .. } => "see the conditions of the Node; the network plugin may be missing".into(),
            UnreadyCause::Silent { .. } => {
                "check the instance's status checks and kubelet, or terminate it so that Auto Scaling replaces it".into()
            }
            UnreadyCause::NotReady { .. } => {
                "see the conditions of the Node; terminate the instance if it does not recover, and Auto Scaling replaces it"
                    .into()
            }
        }
    }

    /// Whether the node has yet to become Ready for the first time, which `joinTimeout` limits.
    fn is_joining(&self) -> bool {
        matches!(self, UnreadyCause::NotJoined | UnreadyCause::NoNode | UnreadyCause::NeverReady { .. })
    }
}

/// How long nodes may be unready before a user should check them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadyLimits {
    /// From the time in service to the first Ready (`joinTimeout`).
    pub join: SignedDuration,
    /// After a node was Ready.
    pub recover: SignedDuration,
}

/// The instances in service without a Ready node, as text.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct UnreadyNodes {
    /// Those that may still become Ready: since when, and after how long the group is Stalled.
    pub waiting: Vec<String>,
    /// Those that took too long, followed by what to do; `None` without any.
    pub overdue: Option<String>,
}

/// Describes the instances in service without a Ready node. `entry` is what authorizes nodes to join.
pub(crate) fn unready_nodes(
    members: &[NodeInstance],
    limits: ReadyLimits,
    entry: &str,
    now: Timestamp,
) -> UnreadyNodes {
    let (mut waiting, mut overdue, mut remedies) = (Vec::new(), Vec::new(), Vec::new());
    for member in members {
        let Some((absence, since)) = UnreadyCause::find(member) else { continue };
        let (limit, name) = match absence.is_joining() {
            true => (limits.join, " (joinTimeout)"),
            false => (limits.recover, ""),
        };
        let (text, limit_text) = (absence.describe(&member.instance.id, since), duration::format(limit));
        if since.is_none_or(|since| now.duration_since(since) < limit) {
            waiting.push(format!("{text}; Stalled after {limit_text}{name}"));
            continue;
        }
        overdue.push(format!("{text}, longer than {limit_text}{name}"));
        let remedy = absence.remedy(entry);
        if !remedies.contains(&remedy) {
            remedies.push(remedy);
        }
    }
    for texts in [&mut waiting, &mut overdue] {
        let others = texts.len().saturating_sub(MAX_NAMED);
        if others > 0 {
            texts.truncate(MAX_NAMED);
            texts.push(format!("{others} other instances as well"));
        }
    }
    let overdue = (!overdue.is_empty()).then(|| format!("{}; {}", overdue.join("; "), remedies.join("; ")));
    UnreadyNodes { waiting, overdue }
}

/// What is wrong with the member, with the time since when.
pub(crate) fn describe(member: &NodeInstance) -> String {
    match UnreadyCause::find(member) {
        Some((absence, since)) => absence.describe(&member.instance.id, since),
        None => member.describe(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::members::LostNode;
    use super::super::tests::{NodeInstanceExt, ago, node_instance, now};
    use super::*;

    const LIMITS: ReadyLimits =
        ReadyLimits { join: SignedDuration::from_mins(15), recover: SignedDuration::from_mins(5) };

    fn unready(member: NodeInstance) -> UnreadyNodes {
        unready_nodes(&[member], LIMITS, "the access entry", now())
    }

    fn assert_names(text: &str, words: &[&str]) {
        for word in words {
            assert!(text.contains(word), "{word:?} is missing in {text:?}");
        }
    }

    /// A node that was Ready has joined: the image and the user data are not its problem.
    #[test]
    fn dead_kubelet_is_not_a_failed_join() {
        let silent = |seconds| {
            node_instance("i-1").unready_since(seconds).node(|n| {
                (n.kubelet_silent, n.ready_reason) = (true, Some("NodeStatusUnknown".into()));
            })
        };
        let soon = unready(silent(60));
        assert_eq!(soon.overdue, None, "a restart of the node takes longer than a minute");
        assert_names(&soon.waiting[0], &["node-i-1", "i-1", "silent since 2026-01-31T11:59:00Z", "5m"]);
        let late = unready(silent(301)).overdue.expect("it takes too long");
        assert_names(&late, &["silent since 2026-01-31T11:54:59Z", "longer than 5m", "terminate"]);
        assert!(!late.contains("image") && !late.contains("joined"), "{late}");
    }

    #[test]
    fn node_that_reports_not_ready_is_named_with_its_reason() {
        let member = node_instance("i-1").unready_since(400).node(|n| n.ready_reason = Some("KubeletNotReady".into()));
        let late = unready(member).overdue.expect("it takes too long");
        assert_names(&late, &["node-i-1", "was Ready", "NotReady since 2026-01-31T11:53:20Z", "KubeletNotReady"]);
    }

    #[test]
    fn instance_that_never_joined_has_its_own_limit_and_remedy() {
        let waiting = unready(node_instance("i-1").never_joined().in_service_since(400)).waiting;
        assert_names(&waiting[0], &["i-1", "since 2026-01-31T11:53:20Z", "has not joined", "15m", "joinTimeout"]);
        let late = unready(node_instance("i-1").never_joined().in_service_since(900)).overdue.expect("too long");
        assert_names(&late, &["has not joined", "15m", "image", "user data", "the access entry"]);
        let joined = node_instance("i-1").in_service_since(900).node(|n| (n.ready, n.was_ready) = (false, false));
        assert_names(&unready(joined).overdue.expect("too long"), &["node-i-1", "has joined", "15m", "network"]);
    }

    /// An instance that is terminated by hand loses its Node before Auto Scaling notices.
    #[test]
    fn deleted_node_of_an_old_instance_has_its_own_wait() {
        let lost = |seconds| LostNode { name: "node-i-1".into(), since: ago(seconds) };
        let member = |seconds| node_instance("i-1").never_joined().with(|m| m.lost_node = Some(lost(seconds)));
        let soon = unready(member(10));
        assert_eq!(soon.overdue, None, "the instance is two hours old, and its Node went ten seconds ago");
        assert_names(&soon.waiting[0], &["i-1", "no Node since 2026-01-31T11:59:50Z", "node-i-1 was deleted"]);
        assert!(unready(member(301)).overdue.is_some_and(|text| text.contains("terminate")));
        let found = node_instance("i-1").never_joined().with(|m| m.instance.was_in_service = true);
        let text = unready(found).overdue.expect("too long");
        assert!(
            !text.contains("joined") && text.contains("no Node since"),
            "it is not known whether it had joined: {text}"
        );
    }
}
