//! Launch templates and their versions.

use super::{Done, Run, Step_, Stopped, gone, tagged};
use crate::aws::{AwsErrorKind, LaunchTemplate, NewTemplate, TemplatePin, TemplateVersion};
use crate::plan::Step;

impl Run<'_> {
    pub(super) async fn template(&mut self, step: &Step) -> Step_ {
        let inventory = self.a.inventory;
        let ec2 = &inventory.aws().ec2;
        match step {
            Step::CreateTemplate(input) => self.create_template(input).await,
            Step::PutTemplateVersion { template, version } => {
                let made = ec2.create_version(template, version).await.map_err(Stopped::Aws)?;
                self.made(&version.description, made);
                Ok(Done::Yes)
            }
            Step::DeleteTemplateVersions { template, numbers } => gone(
                ec2.delete_versions(template, numbers).await.inspect(|()| inventory.gone_versions(template, numbers)),
            ),
            Step::DeleteTemplate { template } => {
                gone(ec2.delete_template(template).await.inspect(|()| inventory.gone_template(template)))
            }
            Step::TagTemplate { template, tags } => {
                tagged(ec2.create_tags(template, tags).await.inspect(|()| inventory.wrote_template_id(template)))
            }
            other => unreachable!("{} is no step of launch templates", other.name()),
        }
    }

    async fn create_template(&mut self, input: &NewTemplate) -> Step_ {
        let inventory = self.a.inventory;
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
                self.made(&input.version.description, version);
                Ok(Done::Yes)
            }
            Err(error) if error.kind == AwsErrorKind::AlreadyExists => {
                let found = inventory.template(&input.name, std::time::Duration::ZERO).await.map_err(Stopped::Aws)?;
                self.ours(&input.name, error.clone(), found.map(|t| t.tags), &input.tags)?;
                // Ours after all: the next pass sees it and its versions.
                Err(Stopped::Aws(error))
            }
            Err(error) => Err(Stopped::Aws(error)),
        }
    }

    fn made(&mut self, line: &str, version: TemplateVersion) {
        self.made.insert(
            line.to_owned(),
            TemplatePin { id: version.template_id.clone(), version: version.number.to_string() },
        );
        self.a.inventory.made_version(version);
    }
}
