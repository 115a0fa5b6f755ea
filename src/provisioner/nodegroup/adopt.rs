//! First sight of a node group that another controller made: it is taken over as it is.

use super::input::Input;
use super::observed::{Group, differences, version_differences};
use crate::api::names::condition;
use crate::plan::{Draft, Note};

/// Tells of a takeover: what was found counts as up to date until something else is wanted.
pub fn nodegroup(input: &Input, current: &Group, draft: &mut Draft) {
    let found = &current.nodegroup;
    let mut differs = differences(input.resolved, found);
    differs.extend(version_differences(input.resolved, found));
    let listed: Vec<_> = differs.iter().map(ToString::to_string).collect();
    let message = match listed.as_slice() {
        [] => format!("the node group {} was taken over as it is", found.name.nodegroup),
        all => format!(
            "the node group {} was taken over; what differs from the spec arrives with the next change: {}",
            found.name.nodegroup,
            all.join("; ")
        ),
    };
    draft.notes.push(Note { condition: condition::ADOPTED, status: true, reason: "TakenOver".into(), message });
}
