//! How nodes are replaced, with the defaults filled in.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::{Amount, Problems, RollingUpdate, set};
use crate::api::names::annotation;
use crate::api::{InstanceGroupSpec, IntOrString};
use crate::provisioner::Problem;

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
