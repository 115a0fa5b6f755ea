//! What our own writes tell the inventory. `made_*` and the like: the write's
//! answer proves it. `wrote_*`: what it is now must be read.

use super::{Inventory, PROFILES, reads};
use crate::aws::{InstanceProfile, LaunchTemplate, NewTemplate, Role, TemplateVersion};
use std::sync::{Arc, PoisonError};

impl Inventory {
    /// A scaling group was created, updated, tagged, or an instance of it terminated.
    pub fn wrote_group(&self, name: &str) {
        self.groups.stale(name);
    }

    /// A group's warm pool was put or deleted, or an instance in it given up.
    pub fn wrote_warm_pool(&self, group: &str) {
        self.warm_pools.stale(group);
    }

    /// Hooks of a group were put or deleted.
    pub fn wrote_hooks(&self, group: &str) {
        self.hooks.stale(group);
    }

    /// A group is gone for good, and its InstanceGroup with it: nothing of it is kept.
    pub fn forget(&self, name: &str) {
        self.groups.forget(|key| key == name);
        self.hooks.forget(|key| key == name);
        self.warm_pools.forget(|key| key == name);
        self.refreshes.forget(|key| key == name);
        self.activities.forget(|key| key == name);
        let gone = self.instances.lock().unwrap_or_else(PoisonError::into_inner).absent(name);
        self.launches.forget(|id| gone.iter().any(|g| g == id));
    }

    /// DeleteLaunchConfiguration answered.
    pub fn gone_configuration(&self, name: &str) {
        self.configurations.forget(|key| key == name);
    }

    /// A launch template was written with an unknown outcome, or tagged.
    pub fn wrote_template(&self, name: &str) {
        self.templates.stale(name);
    }

    /// The same, by the template's id.
    pub fn wrote_template_id(&self, id: &str) {
        if let Some(name) = self.templates.key_where(|t| t.id == id) {
            self.templates.stale(&name);
        }
    }

    /// CreateLaunchTemplate answered.
    pub fn made_template(&self, template: LaunchTemplate) {
        let name = template.name.clone();
        self.templates.put(&name, Some(template));
    }

    /// CreateLaunchTemplate answered with this first version.
    pub fn made_template_of(&self, input: &NewTemplate, version: &TemplateVersion) {
        self.made_template(LaunchTemplate {
            id: version.template_id.clone(),
            name: input.name.clone(),
            default_version: version.number,
            latest_version: version.number,
            tags: input.tags.clone(),
        });
        self.made_version(version.clone());
    }

    /// CreateLaunchTemplateVersion answered.
    pub fn made_version(&self, version: TemplateVersion) {
        let (id, number) = (version.template_id.clone(), version.number);
        self.versions.put(&reads::version_key(&id, number), Some(Arc::new(version)));
        self.templates.change(|t| t.id == id, |t| t.latest_version = t.latest_version.max(number));
    }

    /// ModifyLaunchTemplate answered.
    pub fn made_default(&self, template_id: &str, number: i64) {
        self.templates.change(|t| t.id == template_id, |t| t.default_version = number);
    }

    /// DeleteLaunchTemplateVersions answered.
    pub fn gone_versions(&self, template_id: &str, numbers: &[i64]) {
        self.versions.forget(|key| numbers.iter().any(|n| key == reads::version_key(template_id, *n)));
    }

    /// DeleteLaunchTemplate answered, by the template's id.
    pub fn gone_template(&self, template_id: &str) {
        let prefix = format!("{template_id}/");
        self.versions.forget(|key| key.starts_with(&prefix));
        if let Some(name) = self.templates.key_where(|t| t.id == template_id) {
            self.templates.put(&name, None);
        }
    }

    /// An instance profile was written with an unknown outcome.
    pub fn wrote_profile(&self, name: &str) {
        self.profiles.stale(PROFILES, name);
    }

    /// CreateInstanceProfile or GetInstanceProfile answered.
    pub fn made_profile(&self, profile: InstanceProfile) {
        let name = profile.name.clone();
        self.profiles.put(PROFILES, &name, Some(profile));
    }

    /// AddRoleToInstanceProfile answered.
    pub fn role_added(&self, profile: &str, role: &Role) {
        self.change_role(profile, Some(role.clone()));
    }

    /// RemoveRoleFromInstanceProfile answered.
    pub fn role_removed(&self, profile: &str) {
        self.change_role(profile, None);
    }

    /// DeleteInstanceProfile answered.
    pub fn gone_profile(&self, name: &str) {
        self.profiles.put(PROFILES, name, None);
    }

    /// AttachRolePolicy answered.
    pub fn attached_policy(&self, role: &str, policy_arn: &str) {
        self.policies.put(policy_arn, role, Some(()));
    }

    /// DetachRolePolicy answered.
    pub fn detached_policy(&self, role: &str, policy_arn: &str) {
        self.policies.put(policy_arn, role, None);
    }

    /// A policy was attached or detached with an unknown outcome.
    pub fn wrote_policy(&self, role: &str, policy_arn: &str) {
        self.policies.stale(policy_arn, role);
    }

    fn change_role(&self, name: &str, role: Option<Role>) {
        match self.profiles.last(PROFILES, name) {
            Some(profile) => self.profiles.put(PROFILES, name, Some(InstanceProfile { role, ..profile })),
            None => self.profiles.stale(PROFILES, name),
        }
    }
}
