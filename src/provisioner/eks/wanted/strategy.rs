//! How nodes are replaced, with the defaults filled in.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use serde_json::json;

use super::{Amount, Problems, RollingUpdate, set};
use crate::api::names::annotation;
use crate::api::{ConcurrencyPolicy, GroupId, InstanceGroupSpec, IntOrString, StrategyType};
use crate::provisioner::Problem;
use crate::redact::Redacted;
use crate::upgrade::crd::{Allowed, CrdUpgrade, StatusPath, template};

pub(super) fn strategy(
    problems: &mut Problems,
    annotations: &BTreeMap<String, String>,
    spec: &InstanceGroupSpec,
) -> RollingUpdate {
    let rolling = spec.strategy.as_ref().and_then(|s| s.rolling_update.clone()).unwrap_or_default();
    let mut duration = |field: &str, text: &Option<String>| {
        let text = set(text)?;
        match crate::duration::parse(&text) {
            Some(d) => Some(d),
            None => {
                let path = format!("spec.strategy.rollingUpdate.{field}");
                problems.0.push(Problem::invalid(&path, text, "is no duration", "write it as 90s, 15m or 1h30m"));
                None
            }
        }
    };
    let drain_timeout = duration("drainTimeout", &rolling.drain_timeout);
    let join_timeout = duration("joinTimeout", &rolling.join_timeout).unwrap_or(SignedDuration::from_mins(15));
    let rotate_at = annotations.get(annotation::ROTATE_AT).filter(|t| !t.is_empty()).and_then(|text| {
        match text.parse::<Timestamp>() {
            // EC2 tells launch times in whole seconds: a finer moment would make a node of that second outdated for ever.
            Ok(at) => Some(Timestamp::from_second(at.as_second()).unwrap_or(at)),
            Err(_) => {
                let path = format!("metadata.annotations[{}]", annotation::ROTATE_AT);
                problems.0.push(Problem::invalid(
                    &path,
                    text,
                    "is no RFC 3339 time",
                    "write it as 2026-01-31T08:00:00Z",
                ));
                None
            }
        }
    });
    RollingUpdate {
        max_unavailable: amount(problems, "maxUnavailable", rolling.max_unavailable.as_ref(), 1),
        max_surge: amount(problems, "maxSurge", rolling.max_surge.as_ref(), 0),
        drain_timeout,
        drain_force: rolling.drain_force.unwrap_or(false),
        join_timeout,
        rotate_at,
    }
}

impl RollingUpdate {
    /// Parses the strategy alone, for a provisioner that drains nodes as well; with what is wrong with it.
    pub fn parse(annotations: &BTreeMap<String, String>, spec: &InstanceGroupSpec) -> (Self, Vec<Problem>) {
        let mut problems = Problems::default();
        let found = strategy(&mut problems, annotations, spec);
        (found, problems.0)
    }
}

fn amount(problems: &mut Problems, field: &str, value: Option<&IntOrString>, unset: u32) -> Amount {
    let text = match value {
        None => return Amount::Count(unset),
        Some(IntOrString::Int(n)) => n.to_string(),
        Some(IntOrString::String(text)) if text.is_empty() => return Amount::Count(unset),
        Some(IntOrString::String(text)) => text.clone(),
    };
    let parsed = match text.strip_suffix('%') {
        Some(percent) => percent.parse().ok().filter(|p| *p <= 100).map(Amount::Percent),
        None => text.parse().ok().map(Amount::Count),
    };
    parsed.unwrap_or_else(|| {
        problems.0.push(Problem::invalid(
            &format!("spec.strategy.rollingUpdate.{field}"),
            text,
            "is neither a number of nodes nor a percentage",
            "use for example 1 or 30%",
        ));
        Amount::Count(unset)
    })
}

/// The strategy `crd`, when the spec asks for it. Whom the admin allows what is not known here.
pub(super) fn crd(
    problems: &mut Problems,
    id: &GroupId,
    annotations: &BTreeMap<String, String>,
    spec: &InstanceGroupSpec,
) -> Option<CrdUpgrade> {
    let strategy = spec.strategy.as_ref()?;
    if strategy.r#type.as_deref().and_then(StrategyType::parse) != Some(StrategyType::Crd) {
        return None;
    }
    let crd = strategy.crd.clone().unwrap_or_default();
    let mut required = |field: &str, value: &Option<String>| {
        set(value).unwrap_or_else(|| {
            problems.0.push(Problem::missing(&format!("spec.strategy.crd.{field}")));
            String::new()
        })
    };
    let text = required("spec", &crd.spec);
    let crd_name = required("crdName", &crd.crd_name);
    let path = required("statusJSONPath", &crd.status_json_path);
    let success = required("statusSuccessString", &crd.status_success_string);
    let failure = required("statusFailureString", &crd.status_failure_string);
    if let Err(problem) = template::check(&text) {
        problems.0.push(problem);
    }
    let parsed = StatusPath::parse(&path);
    if parsed.is_none() && !path.is_empty() {
        let (rule, remedy) = ("names no field", "write it as .status.phase");
        problems.0.push(Problem::invalid("spec.strategy.crd.statusJSONPath", &path, rule, remedy));
    }
    if success.eq_ignore_ascii_case(&failure) && !success.is_empty() {
        let (rule, remedy) = ("is the same as statusSuccessString", "name the status that means failure");
        problems.0.push(Problem::invalid("spec.strategy.crd.statusFailureString", &failure, rule, remedy));
    }
    let retries = crd.max_retries.unwrap_or(3);
    if retries < -1 {
        let (rule, remedy) = ("is no number of retries", "use a number from 0 on, or -1 for retries without end");
        problems.0.push(Problem::invalid("spec.strategy.crd.maxRetries", retries, rule, remedy));
    }
    let policy = crd.concurrency_policy.as_deref().and_then(ConcurrencyPolicy::parse);
    Some(CrdUpgrade {
        template: Redacted::new(text),
        crd_name,
        concurrency: policy.unwrap_or(ConcurrencyPolicy::Forbid),
        max_retries: (retries != -1).then_some(retries),
        path: parsed?,
        success,
        failure,
        spec: Redacted::new(json!(spec)),
        metadata: Redacted::new(json!({ "labels": id.labels, "annotations": annotations })),
        allowed: Allowed::default(),
    })
}
