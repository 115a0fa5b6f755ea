//! How nodes of the group join. What cannot be done here is told and stops nothing else.

use super::input::Input;
use crate::auth::access_entries::{Joined, Joining};
use crate::plan::{Draft, Note, Reason};

/// The role with everything that its entries depend on.
pub fn joining<'a>(input: &'a Input) -> Joining<'a> {
    let r = input.resolved;
    Joining {
        way: r.way,
        entry: &r.auth,
        wanted: &r.access,
        found: &input.state.join,
        own_role: r.own_role,
        settled: settled(input),
        handover: input.timing.handover,
        now: input.now,
    }
}

/// Whether IAM knows the role everywhere: a role of our own is complete, and old enough.
fn settled(input: &Input) -> bool {
    let r = input.resolved;
    let profile =
        input.state.profile.as_ref().filter(|p| p.role.as_ref().is_some_and(|role| role.name == r.names.role));
    !r.own_role || profile.is_some_and(|profile| !input.is_young(profile.created))
}

/// Puts and removes entries.
pub fn authorise(joined: Joined, draft: &mut Draft) {
    draft.steps.extend(joined.steps);
    draft.notes.extend(joined.conflict.map(|detail| Note {
        condition: AUTH,
        status: false,
        reason: Reason::AuthConflict.to_string(),
        message: format!("{detail}; new nodes cannot join until it is mended by hand"),
    }));
}

/// A note of this name blocks the group instead of becoming a condition.
pub const AUTH: &str = "aws-auth";
