//! Runs the queries of the checks of a rollout against Prometheus, beside the polls of the groups.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;

use crate::api::{BoundariesRevisionStatus, CheckState};
use crate::controller::context::{Context, publish_event};
use crate::k8s::EventTarget;
use crate::plan::{Event, EventReason};
use crate::rollout::{CheckAnswer, CheckResult, Checks, RolloutView, query};

/// After how many intervals an answer no longer counts.
const MAX_AGE: u32 = 4;

/// Runs each check once in an interval while a rollout is under way and this process leads, and never returns.
pub(crate) async fn run(ctx: Arc<Context>) {
    let timing = ctx.planner.settings.timing;
    loop {
        tokio::time::sleep(timing.poll_interval.unsigned_abs()).await;
        match ctx.stores.rollout.view().filter(|view| ctx.can_write() && view.asks_checks()) {
            Some(view) => run_queries(&ctx, &view).await,
            None => ctx.stores.rollout.with_checks(|checks| *checks = Checks::default()),
        }
    }
}

/// Runs the queries that are due, and records their answers.
async fn run_queries(ctx: &Context, view: &RolloutView) {
    let (interval, cluster) = (interval(ctx), ctx.planner.settings.cluster_name.as_deref());
    let queries = view.policy.checks.iter().filter_map(|check| {
        let query = query(view, check, cluster).ok()?;
        let asked = Instant::now();
        let is_due = ctx.stores.rollout.with_checks(|checks| checks.is_due(&check.name, &query, interval, asked));
        is_due.then_some(async move {
            let answer = match &ctx.prometheus {
                Some(prometheus) => prometheus.query(&query).await,
                None => CheckAnswer::unknown("the controller runs without --prometheus-url"),
            };
            let max_age = interval * MAX_AGE;
            ctx.stores.rollout.with_checks(|checks| checks.record(&check.name, &query, answer, asked, max_age));
        })
    });
    join_all(queries).await;
}

/// How the checks of the rollout stand now.
pub(super) fn results(ctx: &Context, view: &RolloutView) -> Vec<CheckResult> {
    let (max_age, cluster) = (interval(ctx) * MAX_AGE, ctx.planner.settings.cluster_name.as_deref());
    ctx.stores.rollout.with_checks(|checks| checks.results(view, cluster, max_age, Instant::now()))
}

/// Publishes the checks that are not ok any more on `target`, the revision.
pub(super) async fn publish(
    ctx: &Context,
    view: &RolloutView,
    status: &BoundariesRevisionStatus,
    target: &EventTarget,
) {
    for check in &status.checks {
        let before = view.status.checks.iter().find(|old| old.name == check.name).and_then(|old| old.state);
        let (name, why) = (&check.name, check.message.as_deref().unwrap_or_default());
        let event = match check.state.unwrap_or_default() {
            CheckState::Ok => continue,
            state if before == Some(state) => continue,
            CheckState::Failing => {
                Event::warning(EventReason::RolloutCheckFailing, format!("the check {name} fails: {why}"))
            }
            CheckState::Unknown => Event::warning(
                EventReason::RolloutCheckUnknown,
                format!("the state of the check {name} is unknown, so that no wave opens or passes: {why}"),
            ),
        };
        publish_event(target, &event, ctx).await;
    }
}

fn interval(ctx: &Context) -> Duration {
    ctx.planner.settings.timing.check_interval.unsigned_abs()
}
