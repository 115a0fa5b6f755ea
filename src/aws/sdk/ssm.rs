//! AWS Systems Manager Parameter Store.

use async_trait::async_trait;
use aws_sdk_ssm::Client;

use super::convert::to_aws_error;
use crate::aws::{AwsResult, Ssm};

pub(super) struct SsmSdk(pub Client);

#[async_trait]
impl Ssm for SsmSdk {
    async fn parameters(&self, names: &[String]) -> AwsResult<Vec<(String, String)>> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let response = self.0.get_parameters().set_names(Some(names.to_vec())).send().await;
        let response = response.map_err(to_aws_error("SSM", "GetParameters"))?;
        let pair = |p: &aws_sdk_ssm::types::Parameter| Some((p.name()?.to_owned(), p.value()?.to_owned()));
        Ok(response.parameters().iter().filter_map(pair).collect())
    }
}
