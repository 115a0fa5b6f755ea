//! Conversions that several AWS services share.

use aws_sdk_ec2::types as ec2;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;

use crate::aws::{AwsError, AwsResult, Tag};

/// Turns a not-found error into `None`. Other errors are passed on: an unknown result is not absence.
pub(super) fn none_if_not_found<T>(response: AwsResult<T>) -> AwsResult<Option<T>> {
    match response {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// An EC2 tag for a request.
pub(super) fn ec2_tag(tag: &Tag) -> ec2::Tag {
    ec2::Tag::builder().key(&tag.key).value(&tag.value).build()
}

/// Tags from an EC2 response.
pub(super) fn tags_from_ec2(tags: &[ec2::Tag]) -> Vec<Tag> {
    tags.iter().map(|t| Tag { key: owned_text(t.key()), value: owned_text(t.value()) }).collect()
}

/// Turns an SDK error of one operation into ours.
pub(super) fn to_aws_error<E>(
    service: &'static str,
    operation: &'static str,
) -> impl Fn(SdkError<E, HttpResponse>) -> AwsError
where
    E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
{
    move |error| match &error {
        SdkError::ServiceError(answer) => {
            let meta = answer.err();
            AwsError::from_response(
                service,
                operation,
                meta.code().unwrap_or_default(),
                meta.message().unwrap_or("AWS gave no message"),
                answer.raw().status().as_u16(),
            )
        }
        SdkError::TimeoutError(_) => AwsError::no_response(service, operation, "Timeout", &error_chain(&error)),
        SdkError::ResponseError(answer) => match answer.raw().status().as_u16() {
            status @ 400..500 => AwsError::from_response(service, operation, "", &error_chain(&error), status),
            _ => AwsError::no_response(service, operation, "InvalidResponse", &error_chain(&error)),
        },
        _ => AwsError::no_response(service, operation, "NoResponse", &error_chain(&error)),
    }
}

/// The error and its causes, without the debugging text of answers.
pub(super) fn error_chain<E: std::error::Error>(error: &E) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// A time as AWS tells it; one that does not fit is none.
pub(super) fn timestamp(time: Option<&aws_smithy_types::DateTime>) -> Option<jiff::Timestamp> {
    let time = time?;
    jiff::Timestamp::new(time.secs(), i32::try_from(time.subsec_nanos()).ok()?).ok()
}

/// An owned text, empty where AWS said nothing.
pub(super) fn owned_text(value: Option<&str>) -> String {
    value.unwrap_or_default().to_owned()
}
