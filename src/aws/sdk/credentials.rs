//! Whether the SDK finds credentials. Its own error names neither the places where it looked nor a remedy.

use aws_config::SdkConfig;
use aws_credential_types::provider::ProvideCredentials;
use aws_credential_types::provider::error::CredentialsError;

use super::convert::error_chain;

/// Why the AWS clients cannot be created, or cannot call AWS.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// No region is configured.
    #[error(
        "no AWS region: set AWS_REGION, or a region in the profile that AWS_PROFILE names, \
         or run where the instance metadata service answers"
    )]
    NoRegion,
    /// No place has credentials.
    #[error(
        "no AWS credentials: there are none in AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY, the profile {profile}, \
         AWS_WEB_IDENTITY_TOKEN_FILE with AWS_ROLE_ARN (IAM roles for service accounts), \
         AWS_CONTAINER_CREDENTIALS_FULL_URI (EKS Pod Identity) or the instance metadata service; on your machine, log in \
         (`aws configure sso`, `aws configure`) or name another profile in AWS_PROFILE; in the cluster, give the \
         ServiceAccount a role as docs/install.md says"
    )]
    NoCredentials {
        /// The profile that was looked at.
        profile: String,
    },
    /// The credentials of one place cannot be loaded.
    #[error(
        "the AWS credentials cannot be loaded: {cause}; if they are those of the profile {profile}, log in again, for \
         example with `aws sso login`"
    )]
    UnusableCredentials {
        /// The profile that was looked at.
        profile: String,
        /// The error of the SDK.
        cause: String,
    },
}

/// Loads the credentials once.
///
/// # Errors
/// [`ConnectError::NoCredentials`] when no place has any, [`ConnectError::UnusableCredentials`] when a place has some that
/// cannot be loaded now.
pub(super) async fn check(config: &SdkConfig) -> Result<(), ConnectError> {
    let profile = std::env::var("AWS_PROFILE").unwrap_or_else(|_| "default".into());
    let Some(provider) = config.credentials_provider() else { return Err(ConnectError::NoCredentials { profile }) };
    provider.provide_credentials().await.map(|_| ()).map_err(|error| problem(&error, profile))
}

fn problem(error: &CredentialsError, profile: String) -> ConnectError {
    match error {
        CredentialsError::CredentialsNotLoaded(_) => ConnectError::NoCredentials { profile },
        _ => ConnectError::UnusableCredentials { profile, cause: error_chain(error) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The SDK says "the credential provider was not enabled: no providers in chain provided credentials".
    #[test]
    fn problem_says_where_credentials_were_looked_for_and_what_to_do() {
        let none = problem(&CredentialsError::not_loaded("no providers in chain provided credentials"), "work".into());
        for text in ["AWS_ACCESS_KEY_ID", "the profile work", "Pod Identity", "aws configure", "docs/install.md"] {
            assert!(none.to_string().contains(text), "{text}: {none}");
        }
        assert!(!none.to_string().contains("chain"), "{none}");
        let expired = problem(&CredentialsError::provider_error("the SSO token has expired"), "work".into());
        for text in ["the SSO token has expired", "the profile work", "aws sso login"] {
            assert!(expired.to_string().contains(text), "{text}: {expired}");
        }
    }
}
