//! Applies steps to launch templates and their versions.

use crate::apply::{ApplyRun, StepError, StepOutcome, StepResult, allow_tag_denied, ignore_not_found};
use crate::aws::{AwsErrorKind, LaunchTemplate, NewTemplate, NewVersion, Tag, TemplatePin, TemplateVersion};

pub(crate) async fn create_version(run: &mut ApplyRun<'_>, template: &str, version: &NewVersion) -> StepResult {
    let created = run.ctx.inventory.aws().ec2.create_version(template, version).await.map_err(StepError::Aws)?;
    record_created_version(run, &version.description, created);
    Ok(StepOutcome::Applied)
}

pub(crate) async fn delete_versions(run: &ApplyRun<'_>, template: &str, numbers: &[i64]) -> StepResult {
    let inventory = run.ctx.inventory;
    let response = inventory.aws().ec2.delete_versions(template, numbers).await;
    ignore_not_found(response.inspect(|()| inventory.remove_versions(template, numbers)))
}

pub(crate) async fn delete(run: &ApplyRun<'_>, template: &str) -> StepResult {
    let inventory = run.ctx.inventory;
    ignore_not_found(
        inventory.aws().ec2.delete_template(template).await.inspect(|()| inventory.remove_template(template)),
    )
}

pub(crate) async fn tag(run: &ApplyRun<'_>, template: &str, tags: &[Tag]) -> StepResult {
    let inventory = run.ctx.inventory;
    allow_tag_denied(
        inventory
            .aws()
            .ec2
            .create_tags(template, tags)
            .await
            .inspect(|()| inventory.invalidate_template_by_id(template)),
    )
}

pub(crate) async fn create(run: &mut ApplyRun<'_>, input: &NewTemplate) -> StepResult {
    let inventory = run.ctx.inventory;
    match inventory.aws().ec2.create_template(input).await {
        Ok(version) => {
            let template = LaunchTemplate {
                id: version.template_id.clone(),
                name: input.name.clone(),
                default_version: 1,
                latest_version: 1,
                tags: input.tags.clone(),
            };
            inventory.upsert_template(template);
            record_created_version(run, &input.version.description, version);
            Ok(StepOutcome::Applied)
        }
        Err(error) if error.kind == AwsErrorKind::AlreadyExists => {
            // Reads may be older than the template. Another reason made AWS refuse the scaling group with it.
            inventory.forget_rejected_pin(&run.id.key());
            let found = inventory.template(&input.name, std::time::Duration::ZERO).await.map_err(StepError::Aws)?;
            run.adopt_if_owned(&input.name, error.clone(), found.map(|t| t.tags), &input.tags)?;
            // The template belongs to this group. The next reconcile observes it and its versions.
            Err(StepError::Aws(error))
        }
        Err(error) => Err(StepError::Aws(error)),
    }
}

fn record_created_version(run: &mut ApplyRun<'_>, description: &str, version: TemplateVersion) {
    run.created_versions.insert(
        description.to_owned(),
        TemplatePin { id: version.template_id.clone(), version: version.number.to_string() },
    );
    run.ctx.inventory.upsert_version(version);
}
