//! Parses the strategy `crd`, where another controller's resource replaces nodes.

use serde_json::json;

use crate::api::spec_error::{SpecError, SpecErrors, non_empty};
use crate::api::{ConcurrencyPolicy, GroupId, InstanceGroupSpec, StrategyType};
use crate::boundaries::MergedAnnotations;
use crate::rotation::crd::{CrdUpgrade, StatusMatcher, StatusPath, StatusValues, SubmissionPolicy, template};
use crate::util::redact::Redacted;

/// Parses the strategy `crd`, when the spec requests it. The admin's submission policy is added later.
pub(super) fn crd(
    errors: &mut SpecErrors,
    id: &GroupId,
    annotations: &MergedAnnotations,
    spec: &InstanceGroupSpec,
) -> Option<CrdUpgrade> {
    let strategy = spec.strategy.as_ref()?;
    if strategy.r#type.as_deref().and_then(StrategyType::parse) != Some(StrategyType::Crd) {
        return None;
    }
    let crd = strategy.crd.clone().unwrap_or_default();
    let mut required = |field: &str, value: &Option<String>| {
        non_empty(value).unwrap_or_else(|| {
            errors.push_error(SpecError::missing(&format!("spec.strategy.crd.{field}")));
            String::new()
        })
    };
    let text = required("spec", &crd.spec);
    let crd_name = required("crdName", &crd.crd_name);
    let path = required("statusJSONPath", &crd.status_json_path);
    let success = required("statusSuccessString", &crd.status_success_string);
    let failure = required("statusFailureString", &crd.status_failure_string);
    if let Err(problem) = template::check(&text) {
        errors.push_error(problem);
    }
    let parsed = StatusPath::parse(&path);
    if parsed.is_none() && !path.is_empty() {
        let (rule, remedy) = ("does not name a field", "write it as .status.phase");
        errors.push_error(SpecError::invalid("spec.strategy.crd.statusJSONPath", &path, rule, remedy));
    }
    let (success, failure) = (StatusValues::new(success), StatusValues::new(failure));
    if let Some(word) = failure.common_word(&success) {
        let (rule, remedy) = ("is also in statusSuccessString", "name the status that means failure");
        errors.push_error(SpecError::invalid("spec.strategy.crd.statusFailureString", word, rule, remedy));
    }
    let retries = crd.max_retries.unwrap_or(3);
    if retries < -1 {
        let (rule, remedy) = ("is not a valid number of retries", "use 0 or more, or -1 for unlimited retries");
        errors.push_error(SpecError::invalid("spec.strategy.crd.maxRetries", retries, rule, remedy));
    }
    let policy = crd.concurrency_policy.as_deref().and_then(ConcurrencyPolicy::parse);
    Some(CrdUpgrade {
        template: Redacted::new(text),
        crd_name,
        concurrency: policy.unwrap_or(ConcurrencyPolicy::Forbid),
        max_retries: (retries != -1).then_some(retries),
        status_matcher: StatusMatcher { path: parsed?, success, failure },
        spec: Redacted::new(json!(spec)),
        metadata: Redacted::new(json!({ "labels": id.labels, "annotations": annotations })),
        submission_policy: SubmissionPolicy::default(),
    })
}
