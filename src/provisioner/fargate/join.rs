//! How pods of the group join.

use super::input::Input;
use crate::auth::access_entries::Joining;

/// The role with everything that its entries depend on.
pub fn joining<'a>(input: &Input<'a>) -> Joining<'a> {
    let r = input.resolved;
    Joining {
        way: r.way,
        entry: &r.auth,
        wanted: &r.access,
        found: &input.state.join,
        own_role: r.own_role,
        settled: !r.own_role || input.state.role_ready,
        handover: input.timing.handover,
        now: input.now,
    }
}
