//! Launch templates and their versions.

use crate::apply::{Done, Run, Stepped, Stopped, gone, tagged};
use crate::aws::{AwsErrorKind, LaunchTemplate, NewTemplate, NewVersion, Tag, TemplatePin, TemplateVersion};

pub async fn put(run: &mut Run<'_>, template: &str, version: &NewVersion) -> Stepped {
    let made_version = run.a.inventory.aws().ec2.create_version(template, version).await.map_err(Stopped::Aws)?;
    made(run, &version.description, made_version);
    Ok(Done::Yes)
}

pub async fn delete_versions(run: &Run<'_>, template: &str, numbers: &[i64]) -> Stepped {
    let inventory = run.a.inventory;
    let answer = inventory.aws().ec2.delete_versions(template, numbers).await;
    gone(answer.inspect(|()| inventory.gone_versions(template, numbers)))
}

pub async fn delete(run: &Run<'_>, template: &str) -> Stepped {
    let inventory = run.a.inventory;
    gone(inventory.aws().ec2.delete_template(template).await.inspect(|()| inventory.gone_template(template)))
}

pub async fn tag(run: &Run<'_>, template: &str, tags: &[Tag]) -> Stepped {
    let inventory = run.a.inventory;
    tagged(inventory.aws().ec2.create_tags(template, tags).await.inspect(|()| inventory.wrote_template_id(template)))
}

pub async fn create(run: &mut Run<'_>, input: &NewTemplate) -> Stepped {
    let inventory = run.a.inventory;
    match inventory.aws().ec2.create_template(input).await {
        Ok(version) => {
            let template = LaunchTemplate {
                id: version.template_id.clone(),
                name: input.name.clone(),
                default_version: 1,
                latest_version: 1,
                tags: input.tags.clone(),
            };
            inventory.made_template(template);
            made(run, &input.version.description, version);
            Ok(Done::Yes)
        }
        Err(error) if error.kind == AwsErrorKind::AlreadyExists => {
            let found = inventory.template(&input.name, std::time::Duration::ZERO).await.map_err(Stopped::Aws)?;
            run.ours(&input.name, error.clone(), found.map(|t| t.tags), &input.tags)?;
            // Ours after all: the next pass sees it and its versions.
            Err(Stopped::Aws(error))
        }
        Err(error) => Err(Stopped::Aws(error)),
    }
}

fn made(run: &mut Run<'_>, line: &str, version: TemplateVersion) {
    run.made
        .insert(line.to_owned(), TemplatePin { id: version.template_id.clone(), version: version.number.to_string() });
    run.a.inventory.made_version(version);
}
