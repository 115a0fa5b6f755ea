//! Parses `spec.strategy.rollingUpdate`, for every provisioner that drains nodes.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use crate::api::names::annotation;
use crate::api::spec_error::{SpecError, SpecErrors, non_empty};
use crate::api::{InPlaceField, InstanceGroupSpec, IntOrString};
use crate::boundaries::MergedAnnotations;

/// The strategy `rollingUpdate` with its defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct RollingUpdateSettings {
    /// How many nodes may be unavailable at once.
    pub max_unavailable: IntOrPercent,
    /// How many healthy nodes may be in standby at once while their replacements launch.
    pub max_surge: IntOrPercent,
    /// How long a drain may take; `None` waits without limit.
    pub drain_timeout: Option<SignedDuration>,
    /// At the timeout: delete the remaining pods instead of uncordoning the node.
    pub drain_force: bool,
    /// How long a replacement may take from InService to Ready.
    pub join_timeout: SignedDuration,
    /// Nodes launched before this time are outdated.
    pub rotate_at: Option<Timestamp>,
    /// What changes on running nodes, instead of making them outdated.
    pub in_place: BTreeSet<InPlaceField>,
}

impl RollingUpdateSettings {
    /// Parses the strategy and the rotate-at annotation; invalid values are added to `errors`.
    pub(crate) fn parse(errors: &mut SpecErrors, annotations: &MergedAnnotations, spec: &InstanceGroupSpec) -> Self {
        let rolling = spec.strategy.as_ref().and_then(|s| s.rolling_update.clone()).unwrap_or_default();
        let mut duration = |field: &str, text: &Option<String>| {
            let text = non_empty(text)?;
            match crate::util::duration::parse(&text) {
                Some(d) => Some(d),
                None => {
                    let path = format!("spec.strategy.rollingUpdate.{field}");
                    errors.push_error(SpecError::invalid(
                        &path,
                        text,
                        "is not a valid duration",
                        "use for example 90s, 15m or 1h30m",
                    ));
                    None
                }
            }
        };
        let drain_timeout = duration("drainTimeout", &rolling.drain_timeout);
        let join_timeout = duration("joinTimeout", &rolling.join_timeout).unwrap_or(SignedDuration::from_mins(15));
        let rotate_at = annotations.get(annotation::ROTATE_AT).filter(|t| !t.is_empty()).and_then(|text| {
            match text.parse::<Timestamp>() {
                // EC2 reports launch times in whole seconds. With a fraction, nodes of that second would always be outdated.
                Ok(at) => Some(Timestamp::from_second(at.as_second()).unwrap_or(at)),
                Err(_) => {
                    let path = format!("metadata.annotations[{}]", annotation::ROTATE_AT);
                    errors.push_error(SpecError::invalid(
                        &path,
                        text,
                        "is not a valid RFC 3339 time",
                        "use for example 2026-01-31T08:00:00Z",
                    ));
                    None
                }
            }
        });
        Self {
            max_unavailable: parse_int_or_percent(errors, "maxUnavailable", rolling.max_unavailable.as_ref(), 1),
            max_surge: parse_int_or_percent(errors, "maxSurge", rolling.max_surge.as_ref(), 0),
            drain_timeout,
            drain_force: rolling.drain_force.unwrap_or(false),
            join_timeout,
            rotate_at,
            in_place: parse_in_place(errors, rolling.in_place.as_deref().unwrap_or_default()),
        }
    }
}

fn parse_in_place(errors: &mut SpecErrors, given: &[String]) -> BTreeSet<InPlaceField> {
    let mut found = BTreeSet::new();
    for (index, name) in given.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
        match InPlaceField::parse(name) {
            Some(field) => _ = found.insert(field),
            None => errors.push_error(SpecError::invalid(
                &format!("spec.strategy.rollingUpdate.inPlace[{index}]"),
                name,
                "cannot change on running nodes",
                "use labels, taints or tags",
            )),
        }
    }
    found
}

/// A number of nodes, or a percentage of the desired capacity.
///
/// ```
/// use instance_manager::rotation::rolling_update::settings::IntOrPercent;
///
/// assert_eq!(IntOrPercent::Percent(25).resolve(10), 3, "percentages are rounded up");
/// assert_eq!(IntOrPercent::Count(0).resolve(10), 1, "a rotation always makes progress");
/// assert_eq!(IntOrPercent::Count(0).resolve_allowing_zero(10), 0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntOrPercent {
    /// A number of nodes.
    Count(u32),
    /// Percent, rounded up.
    Percent(u32),
}

impl IntOrPercent {
    /// The number for this desired capacity: at least one, at most all.
    pub fn resolve(self, desired: usize) -> usize {
        let amount = match self {
            IntOrPercent::Count(n) => n as usize,
            IntOrPercent::Percent(p) => (desired * p as usize).div_ceil(100),
        };
        amount.clamp(1, desired.max(1))
    }

    /// The number of nodes when the desired capacity is in units and the heaviest node counts for `heaviest` units.
    pub(crate) fn resolve_nodes(self, desired: usize, heaviest: usize) -> usize {
        let of_desired = matches!(self, IntOrPercent::Percent(_));
        if of_desired { (self.resolve(desired) / heaviest.max(1)).max(1) } else { self.resolve(desired) }
    }

    /// Like [`IntOrPercent::resolve_nodes`], but 0 stays 0: `maxSurge`.
    pub(crate) fn resolve_surge(self, desired: usize, heaviest: usize) -> usize {
        if self.resolve_allowing_zero(desired) == 0 { 0 } else { self.resolve_nodes(desired, heaviest) }
    }

    /// Like [`IntOrPercent::resolve`], but 0 stays 0.
    pub fn resolve_allowing_zero(self, desired: usize) -> usize {
        if matches!(self, IntOrPercent::Count(0) | IntOrPercent::Percent(0)) { 0 } else { self.resolve(desired) }
    }
}

fn parse_int_or_percent(errors: &mut SpecErrors, field: &str, value: Option<&IntOrString>, unset: u32) -> IntOrPercent {
    let text = match value {
        None => return IntOrPercent::Count(unset),
        Some(IntOrString::Int(n)) => n.to_string(),
        Some(IntOrString::String(text)) if text.is_empty() => return IntOrPercent::Count(unset),
        Some(IntOrString::String(text)) => text.clone(),
    };
    let parsed = match text.strip_suffix('%') {
        Some(percent) => percent.parse().ok().filter(|p| *p <= 100).map(IntOrPercent::Percent),
        None => text.parse().ok().map(IntOrPercent::Count),
    };
    parsed.unwrap_or_else(|| {
        errors.push_error(SpecError::invalid(
            &format!("spec.strategy.rollingUpdate.{field}"),
            text,
            "is neither a number of nodes nor a percentage",
            "use for example 1 or 30%",
        ));
        IntOrPercent::Count(unset)
    })
}
