//! What an AWS error means here: one table from what AWS said to a closed set.
//!
//! Unknown is not absent: only codes that say "it is not there" become
//! [`AwsErrorKind::NotFound`].

#[cfg(test)]
mod tests;

use std::time::Duration;

/// An AWS call that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{service} {operation}: {code}: {message}")]
pub struct AwsError {
    /// The service as people call it: `AutoScaling`, `EC2`, `IAM`, `EKS`, `SSM`.
    pub service: &'static str,
    /// The API operation, for example `CreateAutoScalingGroup`.
    pub operation: &'static str,
    /// What it means.
    pub kind: AwsErrorKind,
    /// AWS's own code, or ours where no answer came: `Timeout`, `NoResponse`.
    pub code: String,
    /// AWS's words, without what is only noise or secret.
    pub message: String,
}

/// What an AWS error means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AwsErrorKind {
    /// The thing that was asked for is not there.
    NotFound,
    /// A thing of that name is there already.
    AlreadyExists,
    /// Too many calls.
    Throttled,
    /// A right is missing.
    Denied,
    /// Something else uses it or changes it; it passes.
    InUse,
    /// An instance profile or a role that is not known everywhere yet, or wrong.
    InvalidProfile,
    /// A limit of the account.
    Quota,
    /// AWS refuses a value; the same call fails for ever.
    Invalid,
    /// A 5xx, a time-out, no connection. Whether a write took place is unknown.
    Unavailable,
    /// Anything else.
    Other,
}

/// When the same thing may be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Not until someone changes something; the resync looks again.
    Never,
    /// With the group's own exponential backoff.
    Backoff,
    /// After this long.
    After(Duration),
}

impl AwsErrorKind {
    /// The static name, for metrics.
    pub fn name(self) -> &'static str {
        match self {
            AwsErrorKind::NotFound => "NotFound",
            AwsErrorKind::AlreadyExists => "AlreadyExists",
            AwsErrorKind::Throttled => "Throttled",
            AwsErrorKind::Denied => "Denied",
            AwsErrorKind::InUse => "InUse",
            AwsErrorKind::InvalidProfile => "InvalidProfile",
            AwsErrorKind::Quota => "Quota",
            AwsErrorKind::Invalid => "Invalid",
            AwsErrorKind::Unavailable => "Unavailable",
            AwsErrorKind::Other => "Other",
        }
    }

    /// The outcome label of `instance_manager_aws_calls_total` and its like.
    pub fn outcome(self) -> &'static str {
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
    /// An error that AWS answered with.
    pub fn from_response(
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
        }
    }

    /// No usable answer came, so that the outcome of a write is unknown.
    pub fn no_response(service: &'static str, operation: &'static str, code: &str, message: &str) -> Self {
        AwsError {
            service,
            operation,
            kind: AwsErrorKind::Unavailable,
            code: code.to_owned(),
            message: clean_message(message),
        }
    }

    /// Whether it says that the thing is not there.
    pub fn is_not_found(&self) -> bool {
        self.kind == AwsErrorKind::NotFound
    }

    /// When to try again.
    pub fn disposition(&self) -> Disposition {
        match self.kind {
            AwsErrorKind::Denied | AwsErrorKind::Invalid => Disposition::Never,
            AwsErrorKind::InUse => Disposition::After(Duration::from_secs(15)),
            AwsErrorKind::InvalidProfile => Disposition::After(Duration::from_secs(10)),
            AwsErrorKind::Quota => Disposition::After(Duration::from_secs(300)),
            AwsErrorKind::NotFound
            | AwsErrorKind::AlreadyExists
            | AwsErrorKind::Throttled
            | AwsErrorKind::Unavailable
            | AwsErrorKind::Other => Disposition::Backoff,
        }
    }

    /// The IAM action that is missing: the one AWS names (a write may need
    /// another service's right, as `iam:PassRole`), else that of the call.
    pub fn missing_permission(&self) -> Option<String> {
        if self.kind != AwsErrorKind::Denied {
            return None;
        }
        let named = self.message.split_once("to perform: ").map(|(_, rest)| {
            rest.chars().take_while(|c| c.is_ascii_alphanumeric() || matches!(c, ':' | '-')).collect::<String>()
        });
        match named {
            Some(action) if action.contains(':') => Some(action),
            _ => Some(format!("{}:{}", iam_prefix(self.service), self.operation)),
        }
    }
}

/// The prefix of a service's IAM actions, which is also its label in metrics.
pub fn iam_prefix(service: &str) -> &'static str {
    match service {
        "AutoScaling" | "Auto Scaling" => "autoscaling",
        "EC2" => "ec2",
        "IAM" => "iam",
        "EKS" => "eks",
        "SSM" => "ssm",
        _ => "aws",
    }
}

/// AWS's words without the encoded authorization message, on one line, at most 1,024 characters.
fn clean_message(message: &str) -> String {
    let text = message.split("Encoded authorization failure message").next().unwrap_or_default();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(1024) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

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

/// One row: codes of a service ("" is any), what the message must hold in lower case ("" is anything), and the meaning.
struct ErrorRule(&'static str, &'static [CodePattern], &'static str, AwsErrorKind);

/// Read from above, the first that fits decides; codes come before the HTTP status.
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
    // Bad credentials are not a missing right: a new token or a clock helps.
    ErrorRule(
        "",
        &[
            Starts("ExpiredToken"),
            Is("RequestExpired"),
            Is("InvalidClientTokenId"),
            Is("UnrecognizedClientException"),
            Is("SignatureDoesNotMatch"),
            Starts("MissingAuthenticationToken"),
            Starts("IncompleteSignature"),
            Is("AuthFailure"),
        ],
        "",
        AwsErrorKind::Other,
    ),
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

/// What it means that a call of `service` was answered with this code, message and HTTP status.
pub fn classify(service: &str, code: &str, message: &str, status: u16) -> AwsErrorKind {
    let message = message.to_lowercase();
    let hit = ERROR_RULES.iter().find(|ErrorRule(of, codes, text, _)| {
        (of.is_empty() || *of == service) && message.contains(text) && codes.iter().any(|c| c.matches(code))
    });
    match (hit, status) {
        (Some(ErrorRule(_, _, _, kind)), _) => *kind,
        (None, 429) => AwsErrorKind::Throttled,
        (None, 500..) => AwsErrorKind::Unavailable,
        (None, _) => AwsErrorKind::Other,
    }
}
