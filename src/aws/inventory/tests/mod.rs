//! Tests of the inventory's guarantees, which count the calls to AWS.
//!
//! The runtime has one thread, and `join_all` polls up to thirty futures in a row. All reads of a batch are therefore
//! added before the batch is sent, however slow the machine is.

mod batching;
mod caching;
mod instance_types;
mod prefetch;
mod writes;

use std::sync::Arc;
use std::time::Duration;

use super::fake_aws::FakeAws;
use super::{CacheConfig, Inventory};
use crate::aws::*;

const ANY_AGE: Duration = Duration::from_secs(3600);
const NO_CACHE: Duration = Duration::ZERO;

fn fast_config() -> CacheConfig {
    CacheConfig {
        batch_idle: Duration::from_millis(1),
        batch_max_wait: Duration::from_secs(3600),
        prefetch_age: Duration::ZERO,
        ..CacheConfig::default()
    }
}

fn inventory_with_fake_aws() -> (Arc<FakeAws>, Arc<Inventory>) {
    let fake = Arc::new(FakeAws::default());
    let inventory = Inventory::with_config(fake.aws(), fast_config());
    (fake, inventory)
}

fn group(name: &str) -> ScalingGroup {
    samples::scaling_group(name)
}

fn instance(id: &str, state: InstanceState) -> Instance {
    Instance { state, ..samples::instance(id) }
}

fn template(name: &str) -> LaunchTemplate {
    LaunchTemplate { id: format!("lt-{name}"), name: name.into(), default_version: 1, latest_version: 1, tags: vec![] }
}

fn version(id: &str, number: i64) -> TemplateVersion {
    TemplateVersion { template_id: id.into(), number, description: None, data: TemplateData::default() }
}

fn profile(name: &str) -> InstanceProfile {
    InstanceProfile {
        id: format!("AIPA-{name}"),
        name: name.into(),
        arn: format!("arn:{name}"),
        created: None,
        role: None,
        tags: vec![],
    }
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|i| format!("g{i:04}")).collect()
}

fn unavailable() -> AwsError {
    AwsError::no_response("AutoScaling", "DescribeAutoScalingGroups", "Timeout", "")
}

/// Lets every task run until it waits.
async fn let_tasks_run() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}
