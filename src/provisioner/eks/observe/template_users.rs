//! Reads who else launches from the group's launch template before something of it is deleted.

use std::collections::{BTreeMap, BTreeSet};

use crate::aws::AwsResult;
use crate::plan::{EksStep, PlannedStep, Step};
use crate::provisioner::eks::observed::TemplateUser;
use crate::provisioner::observe::Observer;

/// A scaling group other than `own` that has instances from a launch template. Only a list of all scaling groups in the
/// region would show which of them refer to a template. One without instances is therefore not found.
pub(super) async fn template_user(o: &Observer<'_>, template_id: &str, own: &str) -> AwsResult<Option<String>> {
    let found = o.inventory.aws().ec2.scaling_groups_of_template(template_id).await?;
    Ok(found.into_iter().find(|name| name != own))
}

/// The launch templates of which a plan deletes something, and who was found to launch from them.
#[derive(Default)]
pub(crate) struct TemplateUsers {
    asked: BTreeSet<String>,
}

impl TemplateUsers {
    /// Reads who else launches from the templates of which `steps` delete something, for the caller to plan again;
    /// empty when nothing does. Each template is read once, and only when something of it is about to be deleted.
    ///
    /// A failed read counts as a user: nothing of the group depends on the deletion.
    pub(crate) async fn read(
        &mut self,
        o: &Observer<'_>,
        steps: &[PlannedStep],
        own: &str,
    ) -> BTreeMap<String, TemplateUser> {
        let mut found = BTreeMap::new();
        for template in steps.iter().filter_map(|planned| emptied_template(&planned.step)) {
            if !self.asked.insert(template.to_owned()) {
                continue;
            }
            let user = match template_user(o, template, own).await {
                Ok(user) => user.map(TemplateUser::ScalingGroup),
                Err(_) => Some(TemplateUser::Unknown),
            };
            found.extend(user.map(|user| (template.to_owned(), user)));
        }
        found
    }
}

/// The launch template that a step deletes, or of which it deletes versions.
fn emptied_template(step: &Step) -> Option<&str> {
    match step {
        Step::Eks(EksStep::DeleteTemplate { template } | EksStep::DeleteTemplateVersions { template, .. }) => {
            Some(template)
        }
        _ => None,
    }
}
