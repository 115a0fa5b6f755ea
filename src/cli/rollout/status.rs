//! `rollout status`: how far a revision is, wave by wave, and which groups are behind.

use std::process::ExitCode;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use super::ordered_by::{last_order, words};
use super::read::{NO_ROLLOUT, find_with_return, is_about_to_begin, remedy, serialized};
use crate::api::names::{CHANGE_CAUSE, CONFIG_MAP, condition};
use crate::api::{
    BoundariesRevision, BoundariesRevisionStatus, CheckState, CheckStatus, LaggingGroup, RolloutOrders, RolloutPhase,
    WaveState, WaveStatus, rfc3339,
};
use crate::boundaries::{Approval, Boundaries, ROLLOUT_KEY, RolloutPolicy, Wave};
use crate::cli::args::{OutputFormat, RolloutStatusArgs};
use crate::cli::output::print;
use crate::cli::table::table;
use crate::k8s::call;
use crate::rollout::{is_of_aws, unknown_waves, urgent_until};
use crate::util::escape::escape_control;

/// Prints the state of a rollout: its waves, the groups that wait, and the orders.
pub(super) async fn run(args: RolloutStatusArgs) -> anyhow::Result<ExitCode> {
    let (client, revision, returns) = find_with_return(&args.revisions, args.revision.as_ref()).await?;
    let text = match args.output {
        OutputFormat::Text => {
            let policy = read_policy(client, &args.revisions.config_namespace, &revision).await;
            describe(&revision, policy.as_ref(), returns.as_deref(), Timestamp::now())
        }
        format => {
            let document = json!({"revision": revision.spec.number, "from": revision.spec.from, "orders": revision.spec.orders, "status": revision.status});
            serialized(&document, format)?
        }
    };
    print(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// The policy of the live ConfigMap. Without one, or without permission to read it, the one that the revision was stored
/// with.
pub(super) async fn read_policy(
    client: Client,
    namespace: &str,
    revision: &BoundariesRevision,
) -> Option<RolloutPolicy> {
    let maps: Api<ConfigMap> = Api::namespaced(client, namespace);
    let live = call("get", "configmaps", maps.get_opt(CONFIG_MAP)).await.ok().flatten();
    let live = live.and_then(|map| map.data?.remove(ROLLOUT_KEY));
    policy(live.as_ref().or(revision.spec.data.get(ROLLOUT_KEY)))
}

fn policy(text: Option<&String>) -> Option<RolloutPolicy> {
    let data = [(ROLLOUT_KEY.to_owned(), text?.clone())].into();
    Boundaries::parse(&data).ok()?.0.rollout.as_deref().cloned()
}

/// What a person reads. `returns` is the revision to which groups would return.
fn describe(
    revision: &BoundariesRevision,
    policy: Option<&RolloutPolicy>,
    returns: Option<&str>,
    now: Timestamp,
) -> String {
    let (name, from) = (revision.name_any(), &revision.spec.from);
    if is_about_to_begin(revision) {
        return format!("{name}: {}\n", not_started(revision, now));
    }
    let Some(status) = revision.status.as_ref().filter(|status| status.phase.is_some()) else {
        return format!("{name}: {NO_ROLLOUT}\n");
    };
    let phase = status.phase.unwrap_or(RolloutPhase::Assessing);
    let release = if from.release.is_empty() { String::new() } else { format!("  {}", from.release) };
    let mut text = format!("{name}{release}  {phase}{}\n", state(revision, status, policy));
    if let Some(order) = pending_order(revision, status, policy, returns.is_some()) {
        text += &format!("  order   {order}\n");
    }
    let orders = words(revision);
    if !orders.is_empty() {
        let by = last_order(revision).map(|by| format!("; the last one by {by}")).unwrap_or_default();
        text += &format!("  orders  {}\n", escape_control(&format!("{orders}{by}")));
    }
    if phase.is_under_way() && !status.waves.is_empty() {
        let waves: Vec<&str> = status.waves.iter().map(|wave| wave.name.as_str()).collect();
        for order in unknown_waves(&revision.spec.orders, &waves) {
            text += &format!("  ignored {}\n", escape_control(&order));
        }
    }
    let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { escape_control(text).to_string() };
    let cause = revision.annotations().get(CHANGE_CAUSE).map(|cause| format!(" ({})", escape_control(cause)));
    let cause = cause.unwrap_or_default();
    text += &format!("  change  {}{cause}, by {}\n", or_dash(&from.change), or_dash(&from.manager));
    if let Some(groups) = status.groups {
        text += &format!(
            "  groups  {} replace nodes: {} done, {} failed, {} not waited for; {} take it without a wave, {} unchanged\n",
            groups.affected, groups.done, groups.failed, groups.held, groups.in_place, groups.untouched
        );
    }
    if let Some(budget) = &status.budget {
        let limits = budget.limits.iter().map(|limit| format!("{} of {} ({})", limit.used, limit.limit, limit.of));
        let users = budget.users.iter().map(|user| format!("{} {}", user.group, user.nodes)).collect::<Vec<_>>();
        let limits = limits.collect::<Vec<_>>().join(", ");
        text += &format!("  budget  {limits}; unavailable nodes: {}\n", escape_control(&or_dash(&users.join(", "))));
        for group in &budget.oversized {
            text += &format!(
                "          {} replaces {} nodes at once, which is more than the budget: it waits until no other node is unavailable; raise budget.nodes, or let it replace fewer at once\n",
                escape_control(&group.group),
                group.nodes
            );
        }
    }
    if !status.checks.is_empty() {
        let checks = status.checks.iter().map(check).collect::<Vec<_>>();
        text += &format!("  checks  {}\n", escape_control(&checks.join(", ")));
    }
    if revision.spec.orders.urgent {
        text += "  urgent  by an order: waves, soaks, windows and deferrals do not apply to this revision\n";
    }
    let arrived = revision.metadata.creation_timestamp.as_ref().map(|at| at.0);
    let urgent = policy.filter(|_| !is_of_aws(revision)).and_then(|policy| urgent_until(policy, arrived));
    if let Some(until) = urgent.filter(|until| now < *until) {
        text += &format!(
            "  urgent  until {}: waves, soaks, windows and deferrals do not apply until then\n",
            rfc3339(until)
        );
    }
    let halted = status.conditions.iter().find(|found| found.r#type == condition::HALTED && found.is_true());
    if let Some(message) = halted.and_then(|found| found.message.as_ref()) {
        text += &format!("  halted  {}\n", escape_control(message));
    }
    if phase == RolloutPhase::Complete && status.without_waves == Some(true) {
        return text + "\n  all groups took it at once: it is the first revision, or what they had before\n";
    }
    let header =
        ["WAVE", "STATE", "GROUPS", "DONE", "FAILED", "OPENED", "DONE AT", "PASSED", "WAITING"].map(str::to_owned);
    let rows = status.waves.iter().map(|wave| row(wave, phase, policy, &or_dash));
    text += "\n";
    text += &table(&[header].into_iter().chain(rows).collect::<Vec<_>>(), "  ");
    // The status of a revision that was superseded is not written any more.
    if phase != RolloutPhase::Superseded {
        text += &groups("WAITS FOR", &status.waits_for);
        if status.waits_for_more > 0 {
            text += &format!("  and {} more\n", status.waits_for_more);
        }
    }
    text += &groups("BEHIND", &status.behind);
    if !status.drain_forecasts.is_empty() {
        let header = ["DRAIN FORECAST", "WHY"].map(str::to_owned);
        let rows = status.drain_forecasts.iter().map(|drain| [drain.group.clone(), drain.message.clone()]);
        text += "\n";
        text += &table(&[header].into_iter().chain(rows).collect::<Vec<_>>(), "  ");
    }
    text
}

/// A controller that cannot record that a rollout begins does not begin it.
fn not_started(revision: &BoundariesRevision, now: Timestamp) -> String {
    let created = revision.metadata.creation_timestamp.as_ref().map(|at| at.0);
    let minutes = created.map(|created| now.duration_since(created).as_mins()).unwrap_or_default();
    match minutes {
        ..2 => "not started yet; the controller processes a new revision within seconds".to_owned(),
        minutes => format!(
            "not started for {minutes} minutes; the controller does not run, or could not record it: see the events of the ConfigMap instance-manager, and the log of the controller"
        ),
    }
}

/// A table of groups with the revision that each has and the reason; empty without groups.
fn groups(title: &str, groups: &[LaggingGroup]) -> String {
    if groups.is_empty() {
        return String::new();
    }
    let header = [title, "ON", "REASON", "WHY"].map(str::to_owned);
    let rows = groups.iter().map(|group| {
        let revision = group.revision.clone().unwrap_or_else(|| "-".to_owned());
        [group.group.clone(), revision, group.reason.clone(), group.message.clone()]
    });
    format!("\n{}", table(&[header].into_iter().chain(rows).collect::<Vec<_>>(), "  "))
}

/// What a person ordered and the recorded phase does not show yet: the controller looks every few seconds. An abort shows
/// never where nothing is stored to which groups could return.
fn pending_order(
    revision: &BoundariesRevision,
    status: &BoundariesRevisionStatus,
    policy: Option<&RolloutPolicy>,
    can_return: bool,
) -> Option<String> {
    use RolloutPhase::{Aborted, Assessing, Complete, Halted, Returning, Rolling, Superseded};
    let orders = &revision.spec.orders;
    let is_retried = orders.retries > status.retries.unwrap_or_default();
    let waits = |order: &str| Some(format!("{order}, which the controller has not processed yet"));
    match status.phase.unwrap_or(Assessing) {
        Assessing | Rolling | Halted | Complete if orders.aborted => {
            let stable = status.stable.as_ref().filter(|_| status.without_waves != Some(true))?;
            if can_return {
                return waits("an abort");
            }
            let name = revision.name_any();
            Some(format!(
                "an abort, which has no effect, because {stable}, to which groups would return, is no longer stored; correct the ConfigMap, or to continue: instance-manager rollout resume {name}"
            ))
        }
        Halted | Returning | Aborted if is_retried && !orders.aborted => waits("a resume"),
        Rolling if waits_for_given_approval(orders, status, policy) => waits("an approval"),
        Assessing | Rolling | Halted | Returning | Complete | Aborted | Superseded => None,
    }
}

/// Whether the next wave still waits although its approval was given.
fn waits_for_given_approval(
    orders: &RolloutOrders,
    status: &BoundariesRevisionStatus,
    policy: Option<&RolloutPolicy>,
) -> bool {
    let next = status.waves.iter().find(|wave| wave.state != Some(WaveState::Passed));
    let next = next.filter(|wave| wave.state.unwrap_or_default() == WaveState::Waiting && wave.why.is_some());
    let (Some(next), Some(policy)) = (next, policy) else { return false };
    // A wave that waits for the delay of the cluster does so with an approval, too.
    let asks = |wave: &Wave| wave.name == next.name && wave.approval == Some(Approval::Admin);
    let is_given = orders.approved.iter().any(|name| *name == next.name || name == "*");
    is_given && policy.delay.is_empty() && policy.waves.iter().any(asks)
}

/// What the rollout waits for, as text.
fn state(revision: &BoundariesRevision, status: &BoundariesRevisionStatus, policy: Option<&RolloutPolicy>) -> String {
    let (name, phase) = (revision.name_any(), status.phase.unwrap_or(RolloutPhase::Assessing));
    let open = status.waves.iter().position(|wave| wave.state != Some(WaveState::Passed));
    let stable = status.stable.as_deref().unwrap_or("the revision before");
    match (phase, open) {
        (RolloutPhase::Assessing, _) => ": the controller finds out what it means for each group".to_owned(),
        (RolloutPhase::Rolling, _) if revision.spec.orders.paused => {
            format!(": paused; to continue: instance-manager rollout resume {name}")
        }
        (RolloutPhase::Rolling, _) if status.without_waves == Some(true) => {
            let waves = || status.waves.iter();
            let left = waves().map(|wave| wave.groups - wave.done - wave.failed).sum::<i64>();
            let why =
                if status.stable.is_some() { "it is what was complete before" } else { "it is the first revision" };
            let moving = status.groups.as_ref().map_or(0, |groups| groups.moving);
            format!(": groups take it without waves, because {why}; {} left whose nodes are replaced", left + moving)
        }
        (RolloutPhase::Rolling, Some(index)) => {
            let (wave, count) = (&status.waves[index], status.waves.len());
            let what = match wave.state.unwrap_or_default() {
                WaveState::Waiting => match &wave.why {
                    Some(why) => format!("waits for {}", escape_control(why)),
                    None => match unmet_check(status) {
                        Some(check) => format!("waits for {check}"),
                        None => "opens next".to_owned(),
                    },
                },
                WaveState::Open => match &wave.why {
                    Some(why) => format!("is open, but {}", escape_control(why)),
                    None if status.budget.is_some() => "is open, and waits for the budget, which is used up".to_owned(),
                    None => "is open".to_owned(),
                },
                WaveState::Soaking | WaveState::Passed => {
                    let until = passes(wave, policy).map(|at| format!(" until {at}")).unwrap_or_default();
                    let check = unmet_check(status).map(|check| format!(", and waits for {check}"));
                    let why = wave.why.as_ref().map(|why| format!(", but {}", escape_control(why)));
                    format!("soaks{until}{}{}", check.unwrap_or_default(), why.unwrap_or_default())
                }
            };
            format!(": wave {} ({} of {count}) {what}", wave.name, index + 1)
        }
        (RolloutPhase::Rolling, None) => ": the last groups change".to_owned(),
        (RolloutPhase::Returning, _) => format!(": groups return to {stable}; {}", remedy(revision)),
        (RolloutPhase::Aborted, _) => {
            format!(": groups have {stable} again, and replace nodes that still run {name}; {}", remedy(revision))
        }
        (RolloutPhase::Halted | RolloutPhase::Complete | RolloutPhase::Superseded, _) => String::new(),
    }
}

/// A check with its state, and why it is not ok.
fn check(check: &CheckStatus) -> String {
    let (name, state) = (&check.name, check.state.unwrap_or_default().to_string().to_lowercase());
    let since = check.since.as_deref().unwrap_or("-");
    match &check.message {
        Some(why) => format!("{name} {state} since {since} ({why})"),
        None => format!("{name} {state}"),
    }
}

/// The first check that keeps waves from passing.
fn unmet_check(status: &BoundariesRevisionStatus) -> Option<String> {
    let unmet = |check: &&CheckStatus| check.state != Some(CheckState::Ok);
    status.checks.iter().find(unmet).map(|check| match check.state.unwrap_or_default() {
        CheckState::Failing => format!("the check {}, which fails", check.name),
        CheckState::Ok | CheckState::Unknown => format!("the check {}, whose state is unknown", check.name),
    })
}

/// When the soak of a wave ends.
fn passes(wave: &WaveStatus, policy: Option<&RolloutPolicy>) -> Option<String> {
    let settled: Timestamp = wave.settled.as_deref()?.parse().ok()?;
    let soak = policy?.waves.iter().find(|known| known.name == wave.name)?.soak;
    Some(rfc3339(settled.checked_add(soak).ok()?))
}

/// How many groups of a wave wait, by reason. Those that took the revision and are neither done nor failed are what an open
/// wave waits for.
fn waiting(wave: &WaveStatus) -> String {
    let changing = wave.groups - wave.done - wave.failed - wave.waiting.values().sum::<i64>();
    let changing = (changing > 0 && wave.opened.is_some()).then(|| format!("{changing} changing"));
    let others = wave.waiting.iter().map(|(reason, groups)| format!("{groups} {reason}"));
    changing.into_iter().chain(others).collect::<Vec<_>>().join(", ")
}

fn row(
    wave: &WaveStatus,
    phase: RolloutPhase,
    policy: Option<&RolloutPolicy>,
    or_dash: &impl Fn(&str) -> String,
) -> [String; 9] {
    let at = |time: &Option<String>| or_dash(time.as_deref().unwrap_or_default());
    let state = wave.state.unwrap_or_default();
    // No group switches to the revision any more, so that no wave is open or waits for anything.
    let has_stopped = matches!(phase, RolloutPhase::Returning | RolloutPhase::Aborted | RolloutPhase::Superseded);
    let passed = match (state, passes(wave, policy)) {
        (WaveState::Soaking, Some(end)) if !has_stopped => format!("not before {end}"),
        _ => at(&wave.passed),
    };
    [
        wave.name.clone(),
        match has_stopped && state != WaveState::Passed {
            true => "-".to_owned(),
            false => state.to_string(),
        },
        wave.groups.to_string(),
        wave.done.to_string(),
        wave.failed.to_string(),
        at(&wave.opened),
        at(&wave.settled),
        passed,
        if has_stopped { "-".to_owned() } else { or_dash(&waiting(wave)) },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revision() -> BoundariesRevision {
        let object = json!({
            "apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "BoundariesRevision",
            "metadata": {"name": "r14", "namespace": "im"},
            "spec": {"number": 14, "hash": "x", "data": {}, "from": {"manager": "argocd-controller", "release": "2026-08-20", "change": "image: \"ami-1\" -> \"ami-2\""}},
            "status": {
                "phase": "Rolling", "stable": "r13",
                "groups": {"affected": 41, "done": 3, "failed": 0, "held": 1, "inPlace": 12, "untouched": 8, "nodes": 880},
                "waves": [
                    {"name": "canary", "state": "Soaking", "groups": 3, "done": 3, "failed": 0, "opened": "2026-08-21T08:05:00Z", "settled": "2026-08-21T08:41:00Z"},
                    {"name": "general", "state": "Waiting", "groups": 38, "done": 0, "failed": 0, "waiting": {"Locked": 1, "WaveNotOpen": 37}},
                ],
                "budget": {"limits": [{"of": "nodes", "used": 44, "limit": 44}], "users": [{"group": "team-a/db", "nodes": 20}], "oversized": [{"group": "team-a/pool", "nodes": 50}]},
                "drainForecasts": [{"group": "team-c/db", "message": "drains for r14 (wave general) are expected to block. StatefulSet team-c/db: PodDisruptionBudget db"}],
                "behind": [{"group": "team-b/redis", "revision": "r13", "reason": "Locked", "message": "the annotation lock-upgrades on the Namespace keeps the group from r14"}],
            },
        });
        serde_json::from_value(object).expect("a revision")
    }

    /// The first question of an admin: what does it wait for, and until when?
    #[test]
    fn status_names_the_wave_its_end_and_the_groups_behind() {
        let policy = policy(Some(&"waves: [{name: canary, soak: 2h}, {name: general}]".to_owned()));
        let text = describe(&revision(), policy.as_ref(), Some("r13"), Timestamp::now());
        let first = text.lines().next().unwrap_or_default();
        assert_eq!(first, "r14  2026-08-20  Rolling: wave canary (1 of 2) soaks until 2026-08-21T10:41:00Z");
        for words in [
            "41 replace nodes: 3 done",
            "argocd-controller",
            "team-b/redis",
            "r13",
            "lock-upgrades",
            "44 of 44 (nodes); unavailable nodes: team-a/db 20",
            "1 Locked, 37 WaveNotOpen",
            "team-a/pool replaces 50 nodes at once, which is more than the budget",
            "team-c/db       drains for r14 (wave general) are expected to block. StatefulSet team-c/db",
        ] {
            assert!(text.contains(words), "{words} is missing in\n{text}");
        }
    }

    /// Waves that passed without a group would look as if the first revision, or a return, had gone through them.
    #[test]
    fn status_of_a_complete_return_shows_no_waves() {
        for without_waves in [None, Some(true)] {
            let mut revision = revision();
            let status = revision.status.as_mut().expect("a status");
            (status.phase, status.without_waves) = (Some(RolloutPhase::Complete), without_waves);
            status.waves.iter_mut().for_each(|wave| wave.state = Some(WaveState::Passed));
            let text = describe(&revision, None, Some("r13"), Timestamp::now());
            assert_eq!(text.contains("all groups took it at once"), without_waves.is_some(), "{text}");
        }
    }

    /// The cause is what the admin wrote beside the change, for the person who reads it at 3 a.m.
    #[test]
    fn status_shows_the_cause_of_the_change() {
        let mut revision = revision();
        revision.metadata.annotations = Some([(CHANGE_CAUSE.to_owned(), "AMI 2026.08.20 (#4711)".to_owned())].into());
        let text = describe(&revision, None, Some("r13"), Timestamp::now());
        let line = text.lines().find(|line| line.starts_with("  change ")).unwrap_or_default();
        assert!(line.ends_with("-> \"ami-2\" (AMI 2026.08.20 (#4711)), by argocd-controller"), "{line}");
    }

    /// An open wave whose groups are neither done nor failed nor behind would seem to wait for nothing.
    #[test]
    fn status_counts_the_groups_that_an_open_wave_waits_for() {
        let mut revision = revision();
        let wave = &mut revision.status.as_mut().expect("a status").waves[0];
        (wave.state, wave.groups, wave.done) = (Some(WaveState::Open), 4, 1);
        wave.waiting = [("Locked".to_owned(), 1)].into();
        let text = describe(&revision, None, Some("r13"), Timestamp::now());
        let line = text.lines().find(|line| line.trim_start().starts_with("canary")).unwrap_or_default();
        assert!(line.ends_with("2 changing, 1 Locked"), "{text}");
    }

    /// At 3 a.m. a user needs the names of the groups that a wave waits for, and what each of them waits for.
    #[test]
    fn status_names_the_groups_that_the_rollout_waits_for() {
        let mut revision = revision();
        let status = revision.status.as_mut().expect("a status");
        status.waits_for = serde_json::from_value(json!([
            {"group": "team-a/db", "revision": "r14", "reason": "DrainBlocked", "message": "pod db-0: budget db"},
        ]))
        .expect("groups");
        status.waits_for_more = 12;
        let text = describe(&revision, None, Some("r13"), Timestamp::now());
        let after = text.split("WAITS FOR").nth(1).expect("a table");
        assert!(after.contains("team-a/db  r14  DrainBlocked  pod db-0: budget db\n  and 12 more\n"), "{text}");
        revision.status.as_mut().expect("a status").phase = Some(RolloutPhase::Superseded);
        assert!(!describe(&revision, None, Some("r13"), Timestamp::now()).contains("WAITS FOR"));
    }

    /// An admin who gives an order and runs `status` immediately must see it.
    #[test]
    fn status_shows_an_order_that_the_controller_has_not_begun() {
        let shown = |phase: RolloutPhase, aborted: bool, retries: i64| {
            let mut revision = revision();
            (revision.spec.orders.aborted, revision.spec.orders.retries) = (aborted, retries);
            revision.status.as_mut().expect("a status").phase = Some(phase);
            describe(&revision, None, Some("r13"), Timestamp::now())
        };
        let abort = "  order   an abort, which the controller has not processed yet\n";
        let resume = "  order   a resume, which the controller has not processed yet\n";
        assert!(shown(RolloutPhase::Rolling, true, 0).contains(abort));
        assert!(shown(RolloutPhase::Halted, false, 1).contains(resume));
        assert!(shown(RolloutPhase::Aborted, false, 1).contains(resume));
        for (phase, aborted) in
            [(RolloutPhase::Returning, true), (RolloutPhase::Aborted, true), (RolloutPhase::Rolling, false)]
        {
            assert!(!shown(phase, aborted, 0).contains("  order "), "{phase}");
        }
    }

    /// The API server takes every name in a patch, so that only the status can say that it is none of a wave.
    #[test]
    fn status_names_orders_about_unknown_waves() {
        let mut revision = revision();
        revision.spec.orders.skipped = vec!["canary".into(), "genral".into()];
        let text = describe(&revision, None, Some("r13"), Timestamp::now());
        let line = text.lines().find(|line| line.starts_with("  ignored ")).unwrap_or_else(|| panic!("{text}"));
        assert!(line.contains("skipped names the wave genral") && line.ends_with("it has canary, general"), "{line}");
        revision.status.as_mut().expect("a status").phase = Some(RolloutPhase::Complete);
        assert!(!describe(&revision, None, Some("r13"), Timestamp::now()).contains("ignored"), "it is over");
    }

    /// The revision to which groups would return was deleted. An admin must not wait for an abort that never comes.
    #[test]
    fn status_says_that_an_abort_without_a_predecessor_has_no_effect() {
        let mut revision = revision();
        revision.spec.orders.aborted = true;
        let text = describe(&revision, None, None, Timestamp::now());
        assert!(text.contains("an abort, which has no effect, because r13"), "{text}");
        assert!(text.contains("instance-manager rollout resume r14"), "{text}");
    }

    /// A controller that cannot record that a rollout begins does not begin it, and the admin waits for it.
    #[test]
    fn status_says_for_how_long_a_rollout_has_not_started() {
        let mut revision = revision();
        (revision.status, revision.spec.data) = (None, [(ROLLOUT_KEY.to_owned(), "{}".to_owned())].into());
        let now = Timestamp::now();
        for (seconds, words) in [(5, "within seconds"), (720, "not started for 12 minutes")] {
            let created = now - jiff::SignedDuration::from_secs(seconds);
            revision.metadata.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(created));
            let text = describe(&revision, None, None, now);
            assert!(text.contains(words), "{text}");
        }
    }

    /// An admin who looks whether an abort had an effect must not read that a wave is open.
    #[test]
    fn status_shows_no_open_wave_of_a_revision_that_has_stopped() {
        let policy = policy(Some(&"waves: [{name: canary, soak: 2h}, {name: general}]".to_owned()));
        for phase in [RolloutPhase::Returning, RolloutPhase::Aborted, RolloutPhase::Superseded] {
            let mut revision = revision();
            revision.status.as_mut().expect("a status").phase = Some(phase);
            let text = describe(&revision, policy.as_ref(), Some("r13"), Timestamp::now());
            let wave = |name: &str| text.lines().find(|line| line.trim_start().starts_with(name)).unwrap_or_default();
            for words in ["Soaking", "Open", "Waiting", "not before"] {
                assert!(!format!("{}{}", wave("canary"), wave("general")).contains(words), "{phase}: {text}");
            }
        }
    }

    /// The status must name the check that blocks a rollout, and not only the soak. An admin who has just approved a
    /// wave must not read that the wave still waits for an approval.
    #[test]
    fn status_shows_an_approval_that_the_controller_has_not_processed() {
        let text = |approved: &str, delay: &str| {
            let mut found = revision();
            found.spec.orders.approved = vec![approved.to_owned()];
            let waves = &mut found.status.as_mut().expect("a status").waves;
            waves[0].state = Some(WaveState::Passed);
            waves[1].why = Some("an approval: instance-manager rollout approve r14 --wave general".into());
            let waves = "waves: [{name: canary, soak: 2h}, {name: general, approval: admin}]";
            describe(&found, policy(Some(&format!("{delay}\n{waves}"))).as_ref(), Some("r13"), Timestamp::now())
        };
        let pending = "order   an approval, which the controller has not processed yet";
        assert!(text("general", "").contains(pending) && text("*", "").contains(pending), "{}", text("*", ""));
        assert!(!text("canary", "").contains(pending), "another wave");
        assert!(!text("general", "delay: [{clusters: '*', by: 48h}]").contains(pending), "the delay may hold it");
    }

    /// A rollout that waits for Prometheus must not look as if it soaked.
    #[test]
    fn status_shows_the_checks_and_which_one_blocks_the_wave() {
        let mut revision = revision();
        let status = revision.status.as_mut().expect("a status");
        status.checks = serde_json::from_value(json!([
            {"name": "node-errors", "state": "Ok", "since": "2026-08-21T08:00:00Z"},
            {"name": "latency", "state": "Unknown", "since": "2026-08-21T09:00:00Z", "message": "HTTP 503"},
        ]))
        .expect("checks");
        let policy = policy(Some(&"waves: [{name: canary, soak: 2h}, {name: general}]".to_owned()));
        let text = describe(&revision, policy.as_ref(), Some("r13"), Timestamp::now());
        let expected = "soaks until 2026-08-21T10:41:00Z, and waits for the check latency, whose state is unknown";
        assert!(text.lines().next().is_some_and(|line| line.ends_with(expected)), "{text}");
        assert!(
            text.contains("  checks  node-errors ok, latency unknown since 2026-08-21T09:00:00Z (HTTP 503)\n"),
            "{text}"
        );
        let status = revision.status.as_mut().expect("a status");
        status.waves[0].state = Some(WaveState::Waiting);
        status.checks[1].state = Some(CheckState::Failing);
        let text = describe(&revision, policy.as_ref(), Some("r13"), Timestamp::now());
        assert!(text.contains("wave canary (1 of 2) waits for the check latency, which fails"), "{text}");
    }

    #[test]
    fn halted_and_paused_rollouts_name_the_command_that_resumes_them() {
        let mut revision = revision();
        revision.spec.orders.paused = true;
        assert!(
            describe(&revision, None, Some("r13"), Timestamp::now())
                .contains("paused; to continue: instance-manager rollout resume r14")
        );
        let status = revision.status.as_mut().expect("a status");
        status.phase = Some(RolloutPhase::Halted);
        status.conditions =
            vec![crate::api::Condition::new("Halted", true, "GroupsFailed", "team-c/gpu: ReplacementsNotReady")];
        assert!(
            describe(&revision, None, Some("r13"), Timestamp::now())
                .contains("halted  team-c/gpu: ReplacementsNotReady")
        );
        revision.status = None;
        assert!(describe(&revision, None, Some("r13"), Timestamp::now()).contains("it has no rollout"));
    }
}
