//! The table of docs/rollout-reference.md: what an admin may write in the key `rollout`. Limits and defaults are those of
//! the parser.

use std::ops::RangeInclusive;

use super::rollout_checks::{MAX_CHECKS, MAX_QUERY};
use super::rollout_fields::MAX_NAME;
use super::rollout_policy::{
    APPROVAL_WORDS, DEFAULT_HISTORY, DEFAULT_PATIENCE, FAILURE_WORDS, HISTORY, MAX_WAVES, PERCENT, ROTATION_WORDS,
};
use super::rollout_times::MAX_URGENCY;
use crate::util::duration;

/// One row for each field. `$` and a name stand for what the parser knows.
const TABLE: &str = r#"| field | type and unit | default | meaning | who else decides |
| --- | --- | --- | --- | --- |
| `release` | string | none | A name of the change that `rollout status` shows. | only the admin |
| `waves` | list, at most $WAVES | one wave with all groups | The waves in order. A group is in the first that selects it, and the last takes the rest. | orders: `skip`; tenants: `approve-revision` |
| `waves[].name` | at most $NAME lower-case letters, digits and hyphens | required | Name of the wave, unique. | only the admin |
| `waves[].namespaces` | selector, in the [grammar of conditionals](boundaries.md) | all | Selects groups by the labels and annotations of their Namespace; an annotation wins. | users who may label or annotate the Namespace |
| `waves[].groups` | selector | all | Selects groups by their annotations. With `namespaces`, both must match. | tenants, who annotate their groups |
| `waves[].percent` | percentage of groups, from $PERCENT, rounded up | all | Share of the groups whose nodes are replaced and that no earlier wave selects. The hash of the UID selects them, so the selection is stable. | only the admin |
| `waves[].soak` | duration | `0s` | How long the groups must have run the change before the next wave opens. | orders: `skip` |
| `waves[].maxFailures` | number of groups, or a percentage, rounded down | `0` | How many groups of the wave may fail before the rollout halts. | orders: `resume` ends the halt |
| `waves[].atOnce` | number of groups, from 1 | all | How many groups of the wave may replace nodes at once. Within each group, its `maxUnavailable` applies. | only the admin |
| `waves[].approval` | $APPROVAL | none | `admin`: the wave opens when an admin approves it. `tenants`: each group waits for its tenant's approval, until the deadline of its deferral. | orders: `approve`, `skip`; tenants: `approve-revision` |
| `waves[].windows` | list, as `windows` | always | Windows of this wave. One window of each list must be open. | tenants: `window` with a `deferral`, `approve-revision`; orders: `skip --all --now` |
| `windows` | list | always | When nodes may be replaced. | tenants: `window` with a `deferral`, `approve-revision`; orders: `skip --all --now` |
| `windows[].days` | list of `mon`, `tue`, `wed`, `thu`, `fri`, `sat`, `sun` | every day | Days on which the window begins. | only the admin |
| `windows[].from` | time of day, such as `"22:00"` | required | When the window opens. | only the admin |
| `windows[].to` | time of day | required | When the window closes. If it is not later than `from`, the window closes on the next day. | only the admin |
| `windows[].zone` | time zone, such as `Europe/Berlin` | required | Zone of `from` and `to`. | only the admin |
| `freezes` | list | none | Days on which no node is replaced. A freeze is stronger than a window. | orders: `skip --all --now` |
| `freezes[].from` | day, such as `2026-12-18` | required | First frozen day. | only the admin |
| `freezes[].to` | day | required | Last frozen day. | only the admin |
| `freezes[].zone` | time zone | required | Zone in which the days begin and end. | only the admin |
| `freezes[].why` | string | none | Reason that users see. | only the admin |
| `deferral` | list | not at all | How long tenants may defer a revision. The first entry that matches applies. | tenants: `defer-until`, within `max`; orders: `skip --all --now` |
| `deferral[].namespaces` | glob | required | Names of Namespaces. | only the admin |
| `deferral[].max` | duration | required | Longest deferral, from the opening of the group's wave. | only the admin |
| `budget` | map | no limit | How many nodes of all groups may be unavailable while a revision replaces nodes. | only the admin |
| `budget.nodes` | number of nodes, or a percentage, rounded down, at least one | no limit | Unavailable nodes of all groups. | only the admin |
| `budget.zone` | number of nodes, or a percentage, rounded down, at least one | no limit | Unavailable nodes in one availability zone. | only the admin |
| `budget.surge` | number of nodes, from 1 | no limit | Nodes in standby for `maxSurge`, over all groups. | only the admin |
| `checks` | list, at most $CHECKS | none | Queries of Prometheus that must have no result, see [checks](rollouts.md#checks). | orders: `skip` opens a wave nevertheless |
| `checks[].name` | at most $NAME lower-case letters, digits and hyphens | required | Name of the check, unique. | only the admin |
| `checks[].query` | PromQL, at most $QUERY bytes | required | The query. | only the admin |
| `checks[].for` | duration | `0s` | How long the check must fail until the rollout halts, and how long it must be Ok until a wave passes. | only the admin |
| `delay` | list | none | How long a revision waits in this cluster. The first entry that matches applies. | orders: `skip` |
| `delay[].clusters` | glob | required | Names of clusters, as in `--cluster-name`. | only the admin |
| `delay[].by` | duration | required | Delay of the first wave, from the arrival of the revision. | only the admin |
| `urgentUntil` | time in RFC 3339, at most $URGENT days after the arrival of the revision | never | Until this time, waves, soaks, windows, freezes, deferrals, approvals and delays are skipped. New AWS images are never urgent. | only the admin |
| `onFailure` | $FAILURE_WORDS | $FAILURE_DEFAULT | What follows more failures than `maxFailures`. `halt`: no further group switches, and healthy groups keep the change. `return`: all groups return. | orders: `resume`, `abort` |
| `withoutRotation` | $ROTATION_WORDS | $ROTATION_DEFAULT | When groups switch to a change that replaces none of their nodes and evicts no pods: at once, or in their wave. | only the admin |
| `patience` | duration, more than zero | `$PATIENCE` | Time without progress after which a wave no longer waits for a group. A new leader continues to count, and may lose a quarter of it. Time in a window, freeze, order or budget wait does not count. With a `budget`, a drain that is blocked then [yields](rollouts.md#timing-approvals-and-budgets). | orders: `skip` |
| `history` | number of revisions, from $HISTORY_RANGE | `$HISTORY_DEFAULT` | How many revisions are kept at least. | only the admin |
"#;

/// The fields of the key `rollout` as a table in Markdown.
pub fn rollout_reference() -> String {
    let values = [
        ("$WAVES", MAX_WAVES.to_string()),
        ("$NAME", MAX_NAME.to_string()),
        ("$PERCENT", range(&PERCENT)),
        ("$APPROVAL", words(&APPROVAL_WORDS)),
        ("$CHECKS", MAX_CHECKS.to_string()),
        ("$QUERY", MAX_QUERY.to_string()),
        ("$URGENT", (MAX_URGENCY.as_hours() / 24).to_string()),
        ("$FAILURE_WORDS", words(&FAILURE_WORDS)),
        ("$FAILURE_DEFAULT", default_word(&FAILURE_WORDS)),
        ("$ROTATION_WORDS", words(&ROTATION_WORDS)),
        ("$ROTATION_DEFAULT", default_word(&ROTATION_WORDS)),
        ("$PATIENCE", duration::format(DEFAULT_PATIENCE)),
        ("$HISTORY_RANGE", range(&HISTORY)),
        ("$HISTORY_DEFAULT", DEFAULT_HISTORY.to_string()),
    ];
    values.iter().fold(TABLE.to_owned(), |table, (name, value)| table.replace(*name, value))
}

fn range(range: &RangeInclusive<usize>) -> String {
    format!("{} to {}", range.start(), range.end())
}

/// The words that a field accepts.
fn words<T>(choices: &[(&str, T)]) -> String {
    let words: Vec<_> = choices.iter().map(|(word, _)| format!("`{word}`")).collect();
    words.join(" or ")
}

/// The word that means the same as no value.
fn default_word<T: Default + PartialEq>(choices: &[(&str, T)]) -> String {
    let found = choices.iter().find(|(_, meaning)| *meaning == T::default());
    found.map(|(word, _)| format!("`{word}`")).unwrap_or_default()
}
