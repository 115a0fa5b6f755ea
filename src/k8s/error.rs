//! Errors of calls to the API server, classified as far as a decision depends on them.

use std::borrow::Cow;
use std::future::Future;
use std::time::Duration;

use kube::core::Status;

/// Timeout of one request. The client itself has no timeout for a response.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

type BoxedSource = Box<dyn std::error::Error + Send + Sync>;

/// The plural of a resource, with its API group where the group is known only at run time.
pub(crate) type ResourceName = Cow<'static, str>;

/// A failed call to the Kubernetes API, classified. Any error without a clear class is `Unavailable`: its outcome is
/// unknown, and it never means that an object does not exist.
#[derive(Debug, thiserror::Error)]
pub enum KubeError {
    /// The API server reports that the object does not exist.
    #[error("cannot {verb} {resource}: not found")]
    NotFound {
        verb: &'static str,
        resource: ResourceName,
        #[source]
        source: BoxedSource,
    },
    /// The object changed since it was read, or already exists. Read it again and decide again.
    #[error("cannot {verb} {resource}: the object was changed or created by another writer")]
    Conflict {
        verb: &'static str,
        resource: ResourceName,
        #[source]
        source: BoxedSource,
    },
    /// RBAC or an admission plugin denied the call. `verb` and `resource` are spelled as in a Role.
    #[error("not allowed to {verb} {resource}: {message}")]
    Forbidden {
        verb: &'static str,
        resource: ResourceName,
        message: String,
        #[source]
        source: BoxedSource,
    },
    /// The API server throttles requests.
    #[error("cannot {verb} {resource}: too many requests")]
    TooManyRequests {
        verb: &'static str,
        resource: ResourceName,
        /// Delay before a retry, when the server names one.
        retry_after: Option<Duration>,
        #[source]
        source: BoxedSource,
    },
    /// The API server rejects the request as invalid; the same request will fail again.
    #[error("cannot {verb} {resource}: {message}")]
    Invalid {
        verb: &'static str,
        resource: ResourceName,
        message: String,
        #[source]
        source: BoxedSource,
    },
    /// There is no usable response. A write may or may not have happened.
    #[error("cannot {verb} {resource}: {}", response(source.as_ref()))]
    Unavailable {
        verb: &'static str,
        resource: ResourceName,
        #[source]
        source: BoxedSource,
    },
}

/// The message of the API server, or why there is no answer, without the client's dump of the whole response.
fn response(source: &(dyn std::error::Error + 'static)) -> String {
    match source.downcast_ref() {
        Some(error) => describe(error),
        None => source.to_string(),
    }
}

/// An error of the client as text, without its dump of the whole response.
pub(crate) fn describe(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => format!("{} ({})", status.message, status.code),
        other => other.to_string(),
    }
}

impl KubeError {
    /// Classifies an error of the client.
    pub(crate) fn classify(verb: &'static str, resource: impl Into<ResourceName>, error: kube::Error) -> Self {
        let resource = resource.into();
        let kube::Error::Api(status) = &error else {
            let source = Box::new(error);
            return Self::Unavailable { verb, resource, source };
        };
        let message = status.message.clone();
        let retry_after = retry_after(status);
        let (reason, code) = (status.reason.clone(), status.code);
        let source: BoxedSource = Box::new(error);
        match (reason.as_str(), code) {
            ("NotFound", _) => Self::NotFound { verb, resource, source },
            ("Conflict" | "AlreadyExists", _) => Self::Conflict { verb, resource, source },
            ("Forbidden", _) => Self::Forbidden { verb, resource, message, source },
            ("TooManyRequests", _) | (_, 429) => Self::TooManyRequests { verb, resource, retry_after, source },
            ("Invalid" | "BadRequest" | "RequestEntityTooLarge", _) => {
                Self::Invalid { verb, resource, message, source }
            }
            _ => Self::Unavailable { verb, resource, source },
        }
    }

    /// The class by name, for assertions.
    #[cfg(test)]
    pub(crate) fn class(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "NotFound",
            Self::Conflict { .. } => "Conflict",
            Self::Forbidden { .. } => "MissingPermission",
            Self::TooManyRequests { .. } => "TooManyRequests",
            Self::Invalid { .. } => "Invalid",
            Self::Unavailable { .. } => "Unavailable",
        }
    }

    /// Whether the object changed since it was read.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict { .. })
    }

    /// Whether the API server reported that the object does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    /// The API server's status, if it responded.
    pub(super) fn api_status(&self) -> Option<&Status> {
        let source = std::error::Error::source(self)?;
        match source.downcast_ref::<kube::Error>()? {
            kube::Error::Api(status) => Some(status),
            _ => None,
        }
    }

    /// Whether the response contains a cause with this reason.
    pub(super) fn has_cause(&self, reason: &str) -> bool {
        self.api_status()
            .and_then(|status| status.details.as_ref())
            .is_some_and(|details| details.causes.iter().any(|cause| cause.reason == reason))
    }

    /// Turns `Invalid` into `Conflict`: a failed `test` of a JSON patch is reported as invalid, but means that the
    /// object changed.
    pub(super) fn failed_test_is_conflict(self) -> Self {
        match self {
            Self::Invalid { verb, resource, source, .. } => Self::Conflict { verb, resource, source },
            other => other,
        }
    }
}

fn retry_after(status: &Status) -> Option<Duration> {
    let seconds = status.details.as_ref()?.retry_after_seconds;
    (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)))
}

/// Awaits one request with the default timeout and classifies its error.
pub(crate) async fn call<T>(
    verb: &'static str,
    resource: impl Into<ResourceName>,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, KubeError> {
    call_with_timeout(REQUEST_TIMEOUT, verb, resource, request).await
}

/// Awaits one request with a timeout and classifies its error.
pub(crate) async fn call_with_timeout<T>(
    limit: Duration,
    verb: &'static str,
    resource: impl Into<ResourceName>,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, KubeError> {
    match tokio::time::timeout(limit, request).await {
        Ok(response) => response.map_err(|error| KubeError::classify(verb, resource, error)),
        Err(elapsed) => Err(KubeError::Unavailable { verb, resource: resource.into(), source: Box::new(elapsed) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(reason: &str, code: u16) -> &'static str {
        let status = Status::failure("why", reason).with_code(code).boxed();
        KubeError::classify("get", "nodes", kube::Error::Api(status)).class()
    }

    #[test]
    fn errors_are_classified() {
        for (reason, code, expected) in [
            ("NotFound", 404, "NotFound"),
            ("Conflict", 409, "Conflict"),
            ("AlreadyExists", 409, "Conflict"),
            ("Forbidden", 403, "MissingPermission"),
            ("TooManyRequests", 429, "TooManyRequests"),
            ("", 429, "TooManyRequests"),
            ("Invalid", 422, "Invalid"),
            ("BadRequest", 400, "Invalid"),
            ("InternalError", 500, "Unavailable"),
            ("Unauthorized", 401, "Unavailable"),
            ("Expired", 410, "Unavailable"),
        ] {
            assert_eq!(class(reason, code), expected, "{reason} {code}");
        }
    }

    #[test]
    fn unrecognized_404_is_not_treated_as_absent() {
        assert_eq!(class("Failed to parse error data", 404), "Unavailable");
        assert_eq!(class("", 404), "Unavailable");
    }

    /// An admin at night must find the webhook, and not the client's dump of the response.
    #[test]
    fn error_of_the_api_server_is_its_message() {
        let status = Status::failure("failed calling webhook \"dead\"", "InternalError").with_code(500).boxed();
        let error = KubeError::classify("patch", "instancegroups/status", kube::Error::Api(status));
        assert_eq!(error.to_string(), "cannot patch instancegroups/status: failed calling webhook \"dead\" (500)");
    }

    #[test]
    fn forbidden_error_names_missing_permission() {
        let status = Status::failure("no", "Forbidden").with_code(403).boxed();
        let error = KubeError::classify("create", "pods/eviction", kube::Error::Api(status));
        assert_eq!(error.to_string(), "not allowed to create pods/eviction: no");
    }
}
