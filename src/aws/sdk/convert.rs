//! Conversions that several AWS services share.

use aws_sdk_ec2::types as ec2;

use super::owned_text;
use crate::aws::{AwsResult, Tag};

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
