//! What a call to the API server can end in, as far as a decision depends on it.

use std::borrow::Cow;
use std::future::Future;
use std::time::Duration;

use kube::core::Status;

/// Longest time that one request may take. The client itself sets no limit on an answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

type BoxedSource = Box<dyn std::error::Error + Send + Sync>;

/// The plural of a resource, with its API group where that is known only at run time.
pub type ResourceName = Cow<'static, str>;

/// A failed call to the Kubernetes API, classified. Anything that is not clearly one of the other
/// variants is `Unavailable`, whose outcome is unknown: it never means that an object is absent.
#[derive(Debug, thiserror::Error)]
pub enum KubeError {
    /// The API server says that the object does not exist.
    #[error("cannot {verb} {resource}: not found")]
    NotFound {
        verb: &'static str,
        resource: ResourceName,
        #[source]
        source: BoxedSource,
    },
    /// The object changed since it was read, or exists already. Read again and decide anew.
    #[error("cannot {verb} {resource}: it changed in the meantime")]
    Conflict {
        verb: &'static str,
        resource: ResourceName,
        #[source]
        source: BoxedSource,
    },
    /// RBAC or an admission plugin refuses. `verb` and `resource` are spelt as a Role needs them.
    #[error("not allowed to {verb} {resource}: {message}")]
    Forbidden {
        verb: &'static str,
        resource: ResourceName,
        message: String,
        #[source]
        source: BoxedSource,
    },
    /// The API server sheds load.
    #[error("cannot {verb} {resource}: too many requests")]
    TooManyRequests {
        verb: &'static str,
        resource: ResourceName,
        /// Time to wait, when the server names one.
        retry_after: Option<Duration>,
        #[source]
        source: BoxedSource,
    },
    /// The API server judges the request to be wrong; the same request will fail again.
    #[error("cannot {verb} {resource}: {message}")]
    Invalid {
        verb: &'static str,
        resource: ResourceName,
        message: String,
        #[source]
        source: BoxedSource,
    },
    /// No usable answer. A write may or may not have happened.
    #[error("cannot {verb} {resource}: {source}")]
    Unavailable {
        verb: &'static str,
        resource: ResourceName,
        #[source]
        source: BoxedSource,
    },
}

impl KubeError {
    /// Sorts an error of the client into its class.
    pub fn classify(verb: &'static str, resource: impl Into<ResourceName>, error: kube::Error) -> Self {
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

    /// The class as a label for metrics and a reason for conditions.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "NotFound",
            Self::Conflict { .. } => "Conflict",
            Self::Forbidden { .. } => "MissingPermission",
            Self::TooManyRequests { .. } => "TooManyRequests",
            Self::Invalid { .. } => "Invalid",
            Self::Unavailable { .. } => "Unavailable",
        }
    }

    /// Whether the object changed under the write.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict { .. })
    }

    /// Whether the API server said that the object does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    /// The API server's own words, if it answered.
    pub(super) fn api_status(&self) -> Option<&Status> {
        let source = std::error::Error::source(self)?;
        match source.downcast_ref::<kube::Error>()? {
            kube::Error::Api(status) => Some(status),
            _ => None,
        }
    }

    /// Whether a cause with this reason is part of the answer.
    pub(super) fn has_cause(&self, reason: &str) -> bool {
        self.api_status()
            .and_then(|status| status.details.as_ref())
            .is_some_and(|details| details.causes.iter().any(|cause| cause.reason == reason))
    }

    /// A failed `test` of a JSON patch comes back as invalid, but means that the object changed.
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

/// Awaits one request for the usual time at most and classifies its failure.
pub(super) async fn call<T>(
    verb: &'static str,
    resource: impl Into<ResourceName>,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, KubeError> {
    call_with_timeout(REQUEST_TIMEOUT, verb, resource, request).await
}

/// Awaits one request for a bounded time and classifies its failure.
pub(crate) async fn call_with_timeout<T>(
    limit: Duration,
    verb: &'static str,
    resource: impl Into<ResourceName>,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, KubeError> {
    match tokio::time::timeout(limit, request).await {
        Ok(answer) => answer.map_err(|error| KubeError::classify(verb, resource, error)),
        Err(elapsed) => Err(KubeError::Unavailable { verb, resource: resource.into(), source: Box::new(elapsed) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(reason: &str, code: u16) -> &'static str {
        let status = Status::failure("why", reason).with_code(code).boxed();
        KubeError::classify("get", "nodes", kube::Error::Api(status)).reason()
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

    #[test]
    fn forbidden_error_names_missing_permission() {
        let status = Status::failure("no", "Forbidden").with_code(403).boxed();
        let error = KubeError::classify("create", "pods/eviction", kube::Error::Api(status));
        assert_eq!(error.to_string(), "not allowed to create pods/eviction: no");
    }
}
