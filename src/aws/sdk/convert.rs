//! Conversions that several AWS services share.

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_ec2::types as ec2;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;

use crate::aws::{AwsError, AwsResult, Tag};

/// An EC2 tag for a request.
pub(super) fn ec2_tag(tag: &Tag) -> ec2::Tag {
    ec2::Tag::builder().key(&tag.key).value(&tag.value).build()
}

/// Tags from an EC2 response.
pub(super) fn tags_from_ec2(tags: &[ec2::Tag]) -> Vec<Tag> {
    tags.iter().map(|t| Tag { key: owned_text(t.key()), value: owned_text(t.value()) }).collect()
}

/// Returns a function that converts an SDK error of one operation to an [`AwsError`].
pub(super) fn to_aws_error<E>(
    service: &'static str,
    operation: &'static str,
) -> impl Fn(SdkError<E, HttpResponse>) -> AwsError
where
    E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
{
    move |error| match &error {
        _ if let Some(refused) = find_cause::<AwsError>(&error) => refused.clone(),
        _ if let Some(cause) = find_cause::<CredentialsError>(&error) => {
            AwsError::no_credentials(service, operation, &error_chain(cause))
        }
        SdkError::ServiceError(response) => {
            let meta = response.err();
            AwsError::from_response(
                service,
                operation,
                meta.code().unwrap_or_default(),
                meta.message().unwrap_or("AWS sent no message"),
                response.raw().status().as_u16(),
            )
        }
        SdkError::TimeoutError(_) => AwsError::no_response(service, operation, "Timeout", &error_chain(&error)),
        SdkError::ResponseError(response) => match response.raw().status().as_u16() {
            status @ 400..500 => AwsError::from_response(service, operation, "", &error_chain(&error), status),
            _ => AwsError::no_response(service, operation, "InvalidResponse", &error_chain(&error)),
        },
        _ => AwsError::no_response(service, operation, "NoResponse", &error_chain(&error)),
    }
}

/// The error of this type among an error and its causes. An [`AwsError`] is AWS's last error, where the attempt was not made
/// because all attempts of the operation fail.
pub(super) fn find_cause<'a, T: std::error::Error + 'static>(
    error: &'a (dyn std::error::Error + 'static),
) -> Option<&'a T> {
    std::iter::successors(Some(error), |error| error.source()).find_map(|error| error.downcast_ref())
}

/// The messages of an error and its causes. `Debug` output would include the whole response.
pub(super) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// A time from AWS; `None` if it is absent or out of range.
pub(super) fn timestamp(time: Option<&aws_smithy_types::DateTime>) -> Option<jiff::Timestamp> {
    let time = time?;
    jiff::Timestamp::new(time.secs(), i32::try_from(time.subsec_nanos()).ok()?).ok()
}

/// A field that AWS always returns. Without it, no decision may rest on the response.
///
/// The API models of Auto Scaling and IAM mark such fields as required. Examples are the name and the sizes of a
/// scaling group, the id and the lifecycle state of its instances, the name, id and ARN of a role. The models of EC2
/// and EKS mark no field of a response. There, this is for fields without which the object means nothing, such as the
/// ARN of a cluster; every other field may be unknown.
///
/// # Errors
/// The field is missing or an empty text.
pub(super) fn required<'a>(
    value: Option<&'a str>,
    service: &'static str,
    operation: &'static str,
    field: &str,
) -> AwsResult<&'a str> {
    value.filter(|text| !text.is_empty()).ok_or_else(|| missing(service, operation, field))
}

/// The error for a response without a field that AWS always returns.
pub(super) fn missing(service: &'static str, operation: &'static str, field: &str) -> AwsError {
    AwsError::no_response(service, operation, "InvalidResponse", &format!("the response has no {field}"))
}

/// An owned text; empty if AWS returned none.
pub(super) fn owned_text(value: Option<&str>) -> String {
    value.unwrap_or_default().to_owned()
}
