//! The only module that uses the AWS SDK: clients, conversions, errors and metrics of calls.

mod access_entry;
mod autoscaling;
mod call_metrics;
mod circuit_breaker;
mod convert;
mod credentials;
mod dry_run;
mod ec2;
mod eks;
#[cfg(test)]
mod fake_http;
mod fargate;
mod iam;
mod launch_configuration;
mod launch_template;
mod mixed_instances;
mod nodegroup;
mod scaling_group;
mod ssm;
mod warm_pool;

use std::sync::Arc;
use std::time::Duration;

use aws_config::environment::EnvironmentVariableRegionProvider;
use aws_config::imds::region::ImdsRegionProvider;
use aws_config::meta::region::{ProvideRegion, RegionProviderChain};
use aws_config::profile::ProfileFileRegionProvider;
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{AppName, BehaviorVersion, SdkConfig};

use super::Aws;

pub use call_metrics::{CallObserver, OPERATIONS};
pub(crate) use circuit_breaker::{CircuitBreaker, FORGET_AFTER};
pub(crate) use credentials::ConnectError;

/// The clients of the AWS services, and their region.
#[derive(Clone)]
pub(crate) struct AwsConnection {
    /// The clients of all services, in one account and region.
    pub aws: Aws,
    /// For example `us-west-2`. It determines the partition of ARNs.
    pub region: String,
    /// Why the credentials could not be loaded, where a later try may succeed.
    pub credentials_error: Option<ConnectError>,
    /// Ends calls of operations that AWS throttles or does not answer.
    pub circuit_breaker: Arc<CircuitBreaker>,
}

/// Creates the clients with the SDK's default credential chain: environment, profiles, web identity, container and pod
/// identity, instance role. The credentials are loaded once. `max_attempts` limits the attempts of each call, the first
/// included.
///
/// # Errors
/// No region is configured, or there are no credentials.
pub(crate) async fn connect(observer: Arc<dyn CallObserver>, max_attempts: u32) -> Result<AwsConnection, ConnectError> {
    let region = region_chain().region().await.ok_or(ConnectError::NoRegion)?;
    let config = aws_config::defaults(BehaviorVersion::latest())
        .region(region.clone())
        .app_name(AppName::new("instance-manager").expect("a valid application name"))
        // Adaptive retries would let calls wait for tokens until they time out, and hide that AWS throttles them. Calls of an
        // operation that fails all the time end at once instead: see `circuit_breaker`.
        .retry_config(RetryConfig::standard().with_max_attempts(max_attempts.max(1)))
        .timeout_config(timeouts())
        .load()
        .await;
    let credentials_error = match credentials::check(&config).await {
        Err(error @ ConnectError::NoCredentials { .. }) => return Err(error),
        other => other.err(),
    };
    let circuit_breaker = Arc::new(CircuitBreaker::default());
    let aws = clients(&config, observer, circuit_breaker.clone());
    Ok(AwsConnection { aws, region: region.to_string(), credentials_error, circuit_breaker })
}

/// The SDK's default region chain, with shorter timeouts for the instance metadata service, which does not respond
/// outside of AWS.
fn region_chain() -> impl ProvideRegion {
    let metadata = aws_config::imds::Client::builder()
        .max_attempts(2)
        .connect_timeout(Duration::from_secs(1))
        .read_timeout(Duration::from_secs(1))
        .build();
    RegionProviderChain::first_try(EnvironmentVariableRegionProvider::new())
        .or_else(ProfileFileRegionProvider::new())
        .or_else(ImdsRegionProvider::builder().imds_client(metadata).build())
}

/// One attempt may take as long as the slowest describe call. An operation, retries included, ends before any other
/// timeout in the controller.
fn timeouts() -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(Duration::from_secs(3))
        .operation_attempt_timeout(Duration::from_secs(30))
        .operation_timeout(Duration::from_secs(90))
        .build()
}

/// Each service has its own retry partition: failures of one service use up only its own retries.
fn clients(config: &SdkConfig, observer: Arc<dyn CallObserver>, circuit_breaker: Arc<CircuitBreaker>) -> Aws {
    let call_counter = call_metrics::CallCounter { observer, circuit_breaker };
    macro_rules! client {
        ($sdk:ident, $name:literal) => {
            $sdk::Client::from_conf(
                $sdk::config::Builder::from(config)
                    .retry_partition($sdk::config::retry::RetryPartition::new($name))
                    .interceptor(call_counter.clone())
                    .build(),
            )
        };
    }
    let eks = client!(aws_sdk_eks, "eks");
    Aws {
        region: config.region().map(ToString::to_string).unwrap_or_default(),
        autoscaling: Arc::new(autoscaling::AutoScalingSdk(client!(aws_sdk_autoscaling, "autoscaling"))),
        ec2: Arc::new(ec2::Ec2Sdk(client!(aws_sdk_ec2, "ec2"))),
        iam: Arc::new(iam::IamSdk(client!(aws_sdk_iam, "iam"), client!(aws_sdk_sts, "sts"))),
        fargate: Arc::new(fargate::FargateSdk(eks.clone())),
        nodegroups: Arc::new(nodegroup::NodegroupSdk(eks.clone())),
        eks: Arc::new(eks::EksSdk(eks)),
        ssm: Arc::new(ssm::SsmSdk(client!(aws_sdk_ssm, "ssm"))),
    }
}
