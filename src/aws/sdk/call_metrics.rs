//! Counts HTTP attempts by service, operation and outcome, and refuses attempts of operations that fail all the time.

use std::sync::Arc;
use std::time::Instant;

use aws_credential_types::provider::error::CredentialsError;
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::context::{
    BeforeTransmitInterceptorContextRef, FinalizerInterceptorContextRef,
};
use aws_smithy_runtime_api::client::interceptors::{Intercept, dyn_dispatch_hint};
use aws_smithy_runtime_api::client::orchestrator::{HttpResponse, Metadata};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::config_bag::{ConfigBag, Storable, StoreReplace};

use super::circuit_breaker::{CircuitBreaker, FAIL_FAST_AFTER, OTHER_OPERATION};
use super::convert::{error_chain, find_cause};
use crate::aws::error::iam_prefix;
use crate::aws::{AwsError, AwsErrorKind};

/// Observes every HTTP attempt of a call to AWS. Each retry is an attempt of its own.
pub trait CallObserver: Send + Sync + 'static {
    /// Records one attempt. `service` is the prefix of the service's IAM actions, for example `autoscaling`.
    /// `operation` is one of [`OPERATIONS`] or `Other`. `error` is the class of its error; `None` when it succeeded.
    fn record_call(&self, service: &'static str, operation: &'static str, error: Option<AwsErrorKind>);
}

/// Every operation that the controller calls, with the prefix of its IAM action, sorted. Operations of the SDK's
/// credential providers, such as `AssumeRoleWithWebIdentity`, are not included: they need no permission.
pub const OPERATIONS: &[(&str, &str)] = &[
    ("autoscaling", "CreateAutoScalingGroup"),
    ("autoscaling", "CreateOrUpdateTags"),
    ("autoscaling", "DeleteAutoScalingGroup"),
    ("autoscaling", "DeleteLaunchConfiguration"),
    ("autoscaling", "DeleteLifecycleHook"),
    ("autoscaling", "DeleteTags"),
    ("autoscaling", "DeleteWarmPool"),
    ("autoscaling", "DescribeAutoScalingGroups"),
    ("autoscaling", "DescribeInstanceRefreshes"),
    ("autoscaling", "DescribeLaunchConfigurations"),
    ("autoscaling", "DescribeLifecycleHooks"),
    ("autoscaling", "DescribeScalingActivities"),
    ("autoscaling", "DescribeWarmPool"),
    ("autoscaling", "DisableMetricsCollection"),
    ("autoscaling", "EnableMetricsCollection"),
    ("autoscaling", "EnterStandby"),
    ("autoscaling", "PutLifecycleHook"),
    ("autoscaling", "PutWarmPool"),
    ("autoscaling", "ResumeProcesses"),
    ("autoscaling", "SetInstanceHealth"),
    ("autoscaling", "SuspendProcesses"),
    ("autoscaling", "TerminateInstanceInAutoScalingGroup"),
    ("autoscaling", "UpdateAutoScalingGroup"),
    ("ec2", "CreateLaunchTemplate"),
    ("ec2", "CreateLaunchTemplateVersion"),
    ("ec2", "CreateTags"),
    ("ec2", "DeleteLaunchTemplate"),
    ("ec2", "DeleteLaunchTemplateVersions"),
    ("ec2", "DeleteTags"),
    ("ec2", "DescribeImages"),
    ("ec2", "DescribeInstanceTypeOfferings"),
    ("ec2", "DescribeInstanceTypes"),
    ("ec2", "DescribeInstances"),
    ("ec2", "DescribeLaunchTemplateVersions"),
    ("ec2", "DescribeLaunchTemplates"),
    ("ec2", "DescribeRouteTables"),
    ("ec2", "DescribeSecurityGroups"),
    ("ec2", "DescribeSubnets"),
    ("eks", "CreateAccessEntry"),
    ("eks", "CreateFargateProfile"),
    ("eks", "CreateNodegroup"),
    ("eks", "DeleteAccessEntry"),
    ("eks", "DeleteFargateProfile"),
    ("eks", "DeleteNodegroup"),
    ("eks", "DescribeAccessEntry"),
    ("eks", "DescribeCluster"),
    ("eks", "DescribeFargateProfile"),
    ("eks", "DescribeNodegroup"),
    ("eks", "DescribeUpdate"),
    ("eks", "ListAccessEntries"),
    ("eks", "ListFargateProfiles"),
    ("eks", "ListNodegroups"),
    ("eks", "TagResource"),
    ("eks", "UntagResource"),
    ("eks", "UpdateNodegroupConfig"),
    ("eks", "UpdateNodegroupVersion"),
    ("iam", "AddRoleToInstanceProfile"),
    ("iam", "AttachRolePolicy"),
    ("iam", "CreateInstanceProfile"),
    ("iam", "CreateRole"),
    ("iam", "DeleteInstanceProfile"),
    ("iam", "DeleteRole"),
    ("iam", "DetachRolePolicy"),
    ("iam", "GetInstanceProfile"),
    ("iam", "GetRole"),
    ("iam", "ListAttachedRolePolicies"),
    ("iam", "ListEntitiesForPolicy"),
    ("iam", "ListInstanceProfiles"),
    ("iam", "ListInstanceProfilesForRole"),
    ("iam", "ListRolePolicies"),
    ("iam", "RemoveRoleFromInstanceProfile"),
    ("iam", "SimulatePrincipalPolicy"),
    ("iam", "TagInstanceProfile"),
    ("iam", "TagRole"),
    ("iam", "UpdateAssumeRolePolicy"),
    ("ssm", "GetParameters"),
];

/// The metric labels of a call. They are static, so that the number of time series is bounded.
fn metric_labels(service: &str, operation: &str) -> (&'static str, &'static str) {
    let service = iam_prefix(service);
    OPERATIONS.iter().find(|(s, o)| *s == service && *o == operation).copied().unwrap_or((service, OTHER_OPERATION))
}

/// An interceptor that sees each attempt of a client.
#[derive(Clone)]
pub(super) struct CallCounter {
    /// Counts each attempt, retries included, for the metrics of AWS calls.
    pub observer: Arc<dyn CallObserver>,
    /// The operations that fail at the moment, of all clients.
    pub circuit_breaker: Arc<CircuitBreaker>,
}

/// The attempts of one call that AWS throttled or did not answer.
#[derive(Clone, Debug)]
struct FailedAttempts {
    begun: Instant,
    count: u32,
    last_error: AwsError,
}

impl Storable for FailedAttempts {
    type Storer = StoreReplace<Self>;
}

impl FailedAttempts {
    /// The error that ends the call before its next attempt. A group reports its problem only once its call has ended,
    /// and the next pass repeats it.
    fn refuse(&self, now: Instant) -> Option<AwsError> {
        (now.duration_since(self.begun) >= FAIL_FAST_AFTER).then(|| self.last_error.clone())
    }
}

impl std::fmt::Debug for CallCounter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CallCounter")
    }
}

#[dyn_dispatch_hint]
impl Intercept for CallCounter {
    fn name(&self) -> &'static str {
        "CountCalls"
    }

    fn read_before_attempt(
        &self,
        _context: &BeforeTransmitInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let Some(call) = config.load::<Metadata>() else { return Ok(()) };
        let (operation, now) = (metric_labels(call.service(), call.name()), Instant::now());
        let refused = config.load::<FailedAttempts>().and_then(|failed| failed.refuse(now));
        refused
            .or_else(|| self.circuit_breaker.refuse(operation, now))
            .map_or(Ok(()), |last_error| Err(last_error.into()))
    }

    fn read_after_attempt(
        &self,
        context: &FinalizerInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let Some(call) = config.load::<Metadata>() else { return Ok(()) };
        let (service, operation) = metric_labels(call.service(), call.name());
        let error = match (context.output_or_error(), context.response()) {
            (Some(Ok(_)), _) => None,
            // The attempt was not made.
            (Some(Err(error)), _) if error.is_interceptor_error() => return Ok(()),
            (_, Some(response)) => Some(error(service, operation, response)),
            (Some(Err(error)), None) => Some(unanswered(service_name(service), operation, error)),
            (None, None) => Some(AwsError::no_response(service_name(service), operation, "NoResponse", NO_RESPONSE)),
        };
        let kind = error.as_ref().map(|error| error.kind);
        // The other errors end the call, and are logged with what it was made for.
        if let Some(error) =
            error.as_ref().filter(|error| matches!(error.kind, AwsErrorKind::Throttled | AwsErrorKind::Unavailable))
        {
            let known = config.load::<FailedAttempts>();
            let failed = FailedAttempts {
                begun: known.map_or_else(Instant::now, |failed| failed.begun),
                count: known.map_or(1, |failed| failed.count.saturating_add(1)),
                last_error: error.clone(),
            };
            let attempt = failed.count;
            tracing::info!(service, operation, attempt, %error, "attempt of an AWS call failed");
            config.interceptor_state().store_put(failed);
        }
        self.circuit_breaker.record((service, operation), error, Instant::now());
        self.observer.record_call(service, operation, kind);
        Ok(())
    }
}

/// The error of an attempt without a response.
fn unanswered(service: &'static str, operation: &'static str, error: &(dyn std::error::Error + 'static)) -> AwsError {
    if let Some(cause) = find_cause::<CredentialsError>(error) {
        return AwsError::no_credentials(service, operation, &error_chain(cause));
    }
    AwsError::no_response(service, operation, "NoResponse", &format!("{NO_RESPONSE}: {}", error_chain(error)))
}

/// The message about attempts that were not answered.
const NO_RESPONSE: &str = "AWS does not answer";

/// The common name of a service by the prefix of its IAM actions.
fn service_name(prefix: &str) -> &'static str {
    match prefix {
        "autoscaling" => "AutoScaling",
        "ec2" => "EC2",
        "iam" => "IAM",
        "eks" => "EKS",
        _ => "SSM",
    }
}

fn error(service: &str, operation: &'static str, response: &HttpResponse) -> AwsError {
    let body = response.body().bytes().and_then(|b| std::str::from_utf8(b).ok()).unwrap_or_default();
    let code = response.headers().get("x-amzn-errortype").or_else(|| error_code_in(body)).unwrap_or_default();
    let code = code.split(':').next().unwrap_or_default();
    let message = body.get(..2048).unwrap_or(body);
    let message = error_message_in(message).unwrap_or("AWS sent no message");
    AwsError::from_response(service_name(service), operation, code, message, response.status().as_u16())
}

/// The message in the body of an XML (Query) or JSON response.
fn error_message_in(body: &str) -> Option<&str> {
    if let Some((_, rest)) = body.split_once("<Message>") {
        return rest.split('<').next();
    }
    let (_, rest) = body.split_once("\"message\"").or_else(|| body.split_once("\"Message\""))?;
    rest.split('"').nth(1)
}

/// The error code in the body of an XML (Query) or JSON response.
fn error_code_in(body: &str) -> Option<&str> {
    if let Some((_, rest)) = body.split_once("<Code>") {
        return rest.split('<').next();
    }
    let (_, rest) = body.split_once("\"__type\"")?;
    let quoted = rest.split('"').nth(1)?;
    quoted.rsplit('#').next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_smithy_types::body::SdkBody;

    fn response(status: u16, body: &'static str) -> HttpResponse {
        HttpResponse::new(status.try_into().expect("a valid status"), SdkBody::from(body))
    }

    fn outcome(service: &str, response: &HttpResponse) -> &'static str {
        error(service, "AnyOperation", response).kind.outcome()
    }

    /// All attempts of a throttled write took 90 seconds. Meanwhile the group reported nothing, and then that AWS does
    /// not answer.
    #[test]
    fn throttled_call_returns_the_aws_error_before_the_reconcile_stalls() {
        let begun = Instant::now();
        let last_error = AwsError::from_response("AutoScaling", "UpdateAutoScalingGroup", "Throttling", "slow", 400);
        let failed = FailedAttempts { begun, count: 4, last_error: last_error.clone() };
        let after = |seconds| failed.refuse(begun + std::time::Duration::from_secs(seconds));
        assert_eq!((after(19), after(20)), (None, Some(last_error)));
    }

    #[test]
    fn attempts_are_counted_by_outcome() {
        let throttled =
            "<ErrorResponse><Error><Code>Throttling</Code><Message>Rate exceeded</Message></Error></ErrorResponse>";
        assert_eq!(outcome("autoscaling", &response(400, throttled)), "throttled");
        let ec2 = "<Response><Errors><Error><Code>RequestLimitExceeded</Code></Error></Errors></Response>";
        assert_eq!(outcome("ec2", &response(503, ec2)), "throttled");
        assert_eq!(outcome("iam", &response(404, "<Error><Code>NoSuchEntity</Code></Error>")), "not_found");
        let json = r#"{"__type":"com.amazonaws.ssm#AccessDeniedException","message":"no"}"#;
        assert_eq!(outcome("ssm", &response(400, json)), "denied");
        let mut eks = response(404, "{}");
        eks.headers_mut().insert("x-amzn-errortype", "ResourceNotFoundException:http://x");
        assert_eq!(outcome("eks", &eks), "not_found");
        assert_eq!(outcome("eks", &response(502, "<html>")), "unavailable");
    }

    #[test]
    fn unknown_operations_share_one_label() {
        assert_eq!(metric_labels("Auto Scaling", "UpdateAutoScalingGroup"), ("autoscaling", "UpdateAutoScalingGroup"));
        assert_eq!(metric_labels("STS", "AssumeRole"), ("aws", "Other"));
        assert!(OPERATIONS.is_sorted());
    }
}
