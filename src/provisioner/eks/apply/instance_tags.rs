//! Changes the tags of the instances of a scaling group.

use crate::apply::{ApplyRun, StepError, StepOutcome, StepResult};
use crate::aws::{AwsError, AwsErrorKind, InstanceState, Tag};

/// Sets and removes tags on the instances that the scaling group and its warm pool have now. A tag whose value another
/// client changed is not removed.
///
/// The plan was made from an answer that may be older than the new tags of the scaling group: an instance that was launched
/// before these has the old ones.
pub(super) async fn change(run: &mut ApplyRun<'_>, group: &str, set: &[Tag], remove: &[Tag]) -> StepResult {
    let inventory = run.ctx.inventory;
    inventory.invalidate_group(group);
    let found = inventory.group(group, std::time::Duration::ZERO).await.map_err(StepError::Aws)?;
    // The next step records the tags as set, so it must not follow.
    let Some(found) = found else {
        let message = format!("the scaling group {group} is not shown; its instances are tagged once it is");
        let error = AwsError::from_response("AutoScaling", "DescribeAutoScalingGroups", "NotFound", &message, 404);
        return Err(StepError::Aws(error));
    };
    let of_group = found.instances.iter().filter(|instance| instance.state != InstanceState::Terminating);
    let mut ids: Vec<_> = of_group.map(|instance| instance.id.clone()).collect();
    if found.warm_pool.is_some() {
        match inventory.aws().autoscaling.describe_warm_pool(group).await {
            Err(error) if error.kind == AwsErrorKind::NotFound => {}
            answer => ids.extend(answer.map_err(StepError::Aws)?.into_iter().map(|warm| warm.instance.id)),
        }
    }
    let ec2 = &inventory.aws().ec2;
    for ids in ids.chunks(MAX_RESOURCES) {
        if !(run.ctx.request_write)() {
            return Err(StepError::MayNotWrite);
        }
        if !set.is_empty() {
            ec2.tag_instances(ids, set).await.map_err(StepError::Aws)?;
        }
        for tags in with_unique_keys(remove) {
            ec2.untag_instances(ids, &tags).await.map_err(StepError::Aws)?;
        }
    }
    if ids.is_empty() { Ok(StepOutcome::Unchanged) } else { Ok(StepOutcome::Applied) }
}

/// The tags in as many lists as a key has values: a call names a key once.
fn with_unique_keys(tags: &[Tag]) -> Vec<Vec<Tag>> {
    let mut lists: Vec<Vec<Tag>> = Vec::new();
    for tag in tags {
        let free = lists.iter_mut().find(|list| list.iter().all(|other| other.key != tag.key));
        match free {
            Some(list) => list.push(tag.clone()),
            None => lists.push(vec![tag.clone()]),
        }
    }
    lists
}

/// How many instances one call names. EC2 accepts 1,000.
const MAX_RESOURCES: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_names_each_key_once() {
        let tag = |key: &str, value: &str| Tag { key: key.into(), value: value.into() };
        let tags = [tag("cost", "a"), tag("cost", "b"), tag("stage", "x")];
        let lists = with_unique_keys(&tags);
        assert_eq!(lists, [vec![tag("cost", "a"), tag("stage", "x")], vec![tag("cost", "b")]]);
        assert_eq!(with_unique_keys(&[]), Vec::<Vec<Tag>>::new());
    }
}
