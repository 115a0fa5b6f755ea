//! Classifies AWS errors into a closed set with one table.
//!
//! An unknown result is not absence: only codes that report a missing resource become [`AwsErrorKind::NotFound`].

#[cfg(test)]
mod tests;

/// An AWS call that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{service} {operation}: {code}: {message}")]
pub struct AwsError {
    /// The common name of the service: `AutoScaling`, `EC2`, `IAM`, `EKS`, `SSM`.
    pub service: &'static str,
    /// The API operation, for example `CreateAutoScalingGroup`.
    pub operation: &'static str,
    /// The class of the error.
    pub kind: AwsErrorKind,
    /// The error code of AWS, or `Timeout` or `NoResponse` if there was no response.
    pub code: String,
    /// The message of AWS on one line, without the encoded authorization message and the period at its end, at most 1,024
    /// characters.
    pub message: String,
    /// Since when every attempt of this operation has failed, where it is throttled or not answered; `None` otherwise.
    pub failing_since: Option<jiff::Timestamp>,
}

/// The class of an AWS error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AwsErrorKind {
    /// The resource does not exist.
    NotFound,
    /// A resource with that name already exists.
    AlreadyExists,
    /// AWS throttled the call because of too many calls.
    Throttled,
    /// A permission is missing.
    Denied,
    /// The resource is in use or being changed; temporary.
    InUse,
    /// An instance profile or role that is invalid or has not propagated yet.
    InvalidProfile,
    /// A service quota of the account is exhausted.
    Quota,
    /// AWS rejects a value; the same call always fails.
    Invalid,
    /// A 5xx response, a timeout, or no connection. Whether a write took place is unknown.
    Unavailable,
    /// Any other error.
    Other,
}

/// Result of one AWS call.
pub(crate) type AwsResult<T> = Result<T, AwsError>;

/// Turns a not-found error into `None`. Other errors are passed on: an unknown result is not absence.
pub(crate) fn none_if_not_found<T>(result: AwsResult<T>) -> AwsResult<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

impl AwsErrorKind {
    /// The value of the label `outcome` of metrics for AWS calls, such as `instance_manager_aws_calls_total`.
    pub(crate) fn outcome(self) -> &'static str {
        match self {
            AwsErrorKind::Throttled => "throttled",
            AwsErrorKind::Denied => "denied",
            AwsErrorKind::Unavailable => "unavailable",
            AwsErrorKind::NotFound => "not_found",
            AwsErrorKind::AlreadyExists
            | AwsErrorKind::InUse
            | AwsErrorKind::InvalidProfile
            | AwsErrorKind::Quota
            | AwsErrorKind::Invalid
            | AwsErrorKind::Other => "error",
        }
    }
}

impl AwsError {
    /// An error from an AWS response.
    pub(crate) fn from_response(
        service: &'static str,
        operation: &'static str,
        code: &str,
        message: &str,
        status: u16,
    ) -> Self {
        AwsError {
            service,
            operation,
            kind: classify(service, code, message, status),
            code: if code.is_empty() { format!("HTTP {status}") } else { code.to_owned() },
            message: clean_message(message),
            failing_since: None,
        }
    }

    /// An error for a missing or unusable response. The outcome of a write is unknown.
    pub(crate) fn no_response(service: &'static str, operation: &'static str, code: &str, message: &str) -> Self {
        AwsError {
            service,
            operation,
            kind: AwsErrorKind::Unavailable,
            code: code.to_owned(),
            message: clean_message(message),
            failing_since: None,
        }
    }

    /// An error for a call that was not made, because the controller could not load its credentials.
    pub(crate) fn no_credentials(service: &'static str, operation: &'static str, cause: &str) -> Self {
        AwsError {
            service,
            operation,
            kind: AwsErrorKind::Other,
            code: NO_CREDENTIALS.to_owned(),
            message: clean_message(&format!("the controller cannot load its AWS credentials: {cause}")),
            failing_since: None,
        }
    }

    /// Whether the credentials of the controller are missing, invalid or expired.
    pub(crate) fn is_about_credentials(&self) -> bool {
        // EC2 has the same code for an image that is not shared with the account.
        let is_about_others = self.code == "AuthFailure" && !self.message.contains("credentials");
        let is_rejected = INVALID_CREDENTIALS.iter().any(|pattern| pattern.matches(&self.code));
        self.code == NO_CREDENTIALS || is_rejected && !is_about_others
    }

    /// Whether the resource does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        self.kind == AwsErrorKind::NotFound
    }

    /// The missing IAM action, for example `iam:PassRole`, or the actions of which one is missing; `None` for an error other
    /// than a denied permission. AWS's message names the action, which may be of another service than the call. Without a
    /// name it is the call's action, or one that Auto Scaling needs to launch instances.
    pub(crate) fn missing_permission(&self) -> Option<String> {
        if self.kind != AwsErrorKind::Denied {
            return None;
        }
        let named = self.message.split_once("to perform: ").map(|(_, rest)| {
            rest.chars().take_while(|c| c.is_ascii_alphanumeric() || matches!(c, ':' | '-')).collect::<String>()
        });
        match named {
            Some(action) if action.contains(':') => Some(action),
            _ if self.service == "AutoScaling" && TEMPLATE_OPERATIONS.contains(&self.operation) => {
                Some(TEMPLATE_PERMISSIONS.to_owned())
            }
            _ => Some(format!("{}:{}", iam_prefix(self.service), self.operation)),
        }
    }
}

/// The operations of Auto Scaling that give a launch template to a scaling group.
const TEMPLATE_OPERATIONS: [&str; 2] = ["CreateAutoScalingGroup", "UpdateAutoScalingGroup"];
/// What these need besides their own action. When it is missing, the answer names the launch template only (EC2 Auto Scaling
/// User Guide, "Control Amazon EC2 launch template usage in Auto Scaling groups").
const TEMPLATE_PERMISSIONS: &str = "ec2:RunInstances, ec2:CreateTags or iam:PassRole for this launch template (unless a service control policy denies one of them)";

/// The prefix of a service's IAM actions, which is also its metric label: `autoscaling` for `AutoScaling`.
pub(crate) fn iam_prefix(service: &str) -> &'static str {
    match service {
        "AutoScaling" | "Auto Scaling" => "autoscaling",
        "EC2" => "ec2",
        "IAM" => "iam",
        "EKS" => "eks",
        "SSM" => "ssm",
        _ => "aws",
    }
}

/// AWS's message without the encoded authorization message, on one line, at most 1,024 characters. Other clauses follow it,
/// so a period at its end is dropped.
fn clean_message(message: &str) -> String {
    let text = message.split("Encoded authorization failure message").next().unwrap_or_default();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(1024) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => without_period(&text).to_owned(),
    }
}

/// A message of AWS without the period at its end, so that another clause can follow.
pub(crate) fn without_period(message: &str) -> &str {
    message.trim_end().trim_end_matches('.')
}

/// A pattern for error codes.
enum CodePattern {
    Is(&'static str),
    Starts(&'static str),
    Ends(&'static str),
}
use CodePattern::{Ends, Is, Starts};

impl CodePattern {
    fn matches(&self, code: &str) -> bool {
        match self {
            Is(text) => code == *text,
            Starts(text) => code.starts_with(text),
            Ends(text) => code.ends_with(text),
        }
    }
}

/// A row of the table: the service ("" is any), its error codes, a lower-case text that the message must contain ("" is
/// any message), and the class of the error.
struct ErrorRule(&'static str, &'static [CodePattern], &'static str, AwsErrorKind);

/// The code of a call that was not made, because there are no credentials.
const NO_CREDENTIALS: &str = "CredentialsUnavailable";

/// The codes with which AWS rejects credentials.
const INVALID_CREDENTIALS: &[CodePattern] = &[
    Starts("ExpiredToken"),
    Is("RequestExpired"),
    Is("InvalidClientTokenId"),
    Is("UnrecognizedClientException"),
    Is("SignatureDoesNotMatch"),
    Starts("MissingAuthenticationToken"),
    Starts("IncompleteSignature"),
    Is("AuthFailure"),
];

/// The first matching rule decides. The HTTP status counts only if no rule matches.
const ERROR_RULES: &[ErrorRule] = &[
    ErrorRule(
        "",
        &[
            Starts("Throttl"),
            Starts("RequestThrottled"),
            Is("RequestLimitExceeded"),
            Is("EC2ThrottledException"),
            Is("TooManyRequestsException"),
            Is("PriorRequestNotComplete"),
            Is("BandwidthLimitExceeded"),
            Is("SlowDown"),
        ],
        "",
        AwsErrorKind::Throttled,
    ),
    // Invalid credentials are not a missing permission: new credentials or a correct clock solve the problem.
    ErrorRule("", INVALID_CREDENTIALS, "", AwsErrorKind::Other),
    ErrorRule(
        "",
        &[
            Starts("AccessDenied"),
            Is("UnauthorizedOperation"),
            Is("UnauthorizedAccess"),
            Starts("NotAuthorized"),
            Is("OptInRequired"),
        ],
        "",
        AwsErrorKind::Denied,
    ),
    ErrorRule(
        "",
        &[Starts("InvalidParameter"), Is("ValidationError")],
        "invalid iaminstanceprofile",
        AwsErrorKind::InvalidProfile,
    ),
    ErrorRule(
        "",
        &[Starts("InvalidParameter"), Is("ValidationError")],
        "invalid iam instance profile",
        AwsErrorKind::InvalidProfile,
    ),
    ErrorRule("EKS", &[Is("InvalidParameterException")], "podexecutionrole trust policy", AwsErrorKind::InvalidProfile),
    ErrorRule("AutoScaling", &[Is("ValidationError")], "autoscalinggroup name not found", AwsErrorKind::NotFound),
    // The tag calls have a message of their own.
    ErrorRule("AutoScaling", &[Is("ValidationError")], "autoscalinggroup not found", AwsErrorKind::NotFound),
    ErrorRule("AutoScaling", &[Is("ValidationError")], "instance id not found", AwsErrorKind::NotFound),
    ErrorRule("AutoScaling", &[Is("ValidationError")], "no managed instance found", AwsErrorKind::NotFound),
    ErrorRule("AutoScaling", &[Is("ValidationError")], "no lifecycle hook found", AwsErrorKind::NotFound),
    ErrorRule("AutoScaling", &[Is("ValidationError")], "no warm pool found", AwsErrorKind::NotFound),
    ErrorRule("AutoScaling", &[Is("ValidationError")], "launch configuration name not found", AwsErrorKind::NotFound),
    ErrorRule("AutoScaling", &[Is("AlreadyExists")], "", AwsErrorKind::AlreadyExists),
    ErrorRule(
        "AutoScaling",
        &[
            Starts("ResourceInUse"),
            Is("ScalingActivityInProgress"),
            Is("ResourceContention"),
            Is("InstanceRefreshInProgress"),
        ],
        "",
        AwsErrorKind::InUse,
    ),
    ErrorRule("IAM", &[Starts("NoSuchEntity")], "", AwsErrorKind::NotFound),
    ErrorRule("IAM", &[Starts("EntityAlreadyExists")], "", AwsErrorKind::AlreadyExists),
    ErrorRule(
        "IAM",
        &[Starts("DeleteConflict"), Starts("ConcurrentModification"), Starts("EntityTemporarilyUnmodifiable")],
        "",
        AwsErrorKind::InUse,
    ),
    ErrorRule("IAM", &[Is("UnmodifiableEntity"), Is("PolicyNotAttachable")], "", AwsErrorKind::Invalid),
    ErrorRule(
        "EC2",
        &[Ends(".NotFound"), Ends(".NotFoundException"), Ends(".VersionNotFound")],
        "",
        AwsErrorKind::NotFound,
    ),
    ErrorRule(
        "EC2",
        &[Ends(".AlreadyExistsException"), Ends(".AlreadyExists"), Ends(".Duplicate")],
        "",
        AwsErrorKind::AlreadyExists,
    ),
    ErrorRule(
        "EC2",
        &[Is("DependencyViolation"), Is("IncorrectState"), Is("IncorrectInstanceState"), Ends(".InUse")],
        "",
        AwsErrorKind::InUse,
    ),
    ErrorRule("EKS", &[Is("ResourceNotFoundException"), Is("NotFoundException")], "", AwsErrorKind::NotFound),
    // TagResource and UntagResource have NotFoundException and this one (EKS API Reference).
    ErrorRule("EKS", &[Is("BadRequestException")], "", AwsErrorKind::Invalid),
    ErrorRule("EKS", &[Is("ResourceInUseException")], "already exists", AwsErrorKind::AlreadyExists),
    ErrorRule(
        "EKS",
        &[Is("ResourceInUseException")],
        "access entry resource is already in use",
        AwsErrorKind::AlreadyExists,
    ),
    ErrorRule("EKS", &[Is("InvalidParameterException")], "invalid principal", AwsErrorKind::InvalidProfile),
    ErrorRule("EKS", &[Is("ResourceInUseException")], "", AwsErrorKind::InUse),
    ErrorRule("EKS", &[Is("InvalidRequestException")], "currently has fargate profile", AwsErrorKind::InUse),
    ErrorRule("SSM", &[Is("ParameterNotFound")], "", AwsErrorKind::NotFound),
    ErrorRule(
        "",
        &[
            Ends("LimitExceeded"),
            Ends("LimitExceededException"),
            Ends("QuotaExceededException"),
            Is("ResourceCountExceeded"),
        ],
        "",
        AwsErrorKind::Quota,
    ),
    ErrorRule(
        "",
        &[
            Starts("InternalError"),
            Starts("InternalFailure"),
            Starts("InternalServerError"),
            Starts("ServiceUnavailable"),
            Starts("ServiceFailure"),
            Is("ServerException"),
            Is("Unavailable"),
            Starts("RequestTimeout"),
        ],
        "",
        AwsErrorKind::Unavailable,
    ),
    ErrorRule(
        "",
        &[
            Is("ValidationError"),
            Is("ValidationException"),
            Starts("Invalid"),
            Starts("Malformed"),
            Starts("Missing"),
            Starts("Unsupported"),
            Is("UnknownParameter"),
            Is("ClientException"),
            Is("IdempotentParameterMismatch"),
        ],
        "",
        AwsErrorKind::Invalid,
    ),
];

/// The policy that denies a call explicitly, as a phrase; `None` when AWS names none in the message.
pub(crate) fn denying_policy(message: &str) -> Option<&'static str> {
    let policies = [
        ("service control policy", "a service control policy of the organization"),
        ("resource control policy", "a resource control policy of the organization"),
        ("permissions boundary", "the permissions boundary of the controller's IAM role"),
        ("VPC endpoint policy", "the policy of a VPC endpoint"),
        ("session policy", "a session policy"),
        ("explicit deny", "a statement that denies it explicitly"),
    ];
    policies.into_iter().find(|(words, _)| message.contains(words)).map(|(_, policy)| policy)
}

/// Classifies the error response of a service by code, message and HTTP status.
pub(crate) fn classify(service: &str, code: &str, message: &str, status: u16) -> AwsErrorKind {
    let message = message.to_lowercase();
    let rule = ERROR_RULES.iter().find(|ErrorRule(rule_service, codes, text, _)| {
        (rule_service.is_empty() || *rule_service == service)
            && message.contains(text)
            && codes.iter().any(|c| c.matches(code))
    });
    match (rule, status) {
        (Some(ErrorRule(_, _, _, kind)), _) => *kind,
        (None, 429) => AwsErrorKind::Throttled,
        (None, 500..) => AwsErrorKind::Unavailable,
        (None, _) => AwsErrorKind::Other,
    }
}
