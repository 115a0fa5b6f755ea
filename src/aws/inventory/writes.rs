//! Updates the inventory after the controller's own writes. `upsert_*` and `remove_*` store what the response shows.
//! `invalidate_*` forces the next read to call AWS: after a write with an unknown outcome, or with a response that does
//! not show the new state.

use std::sync::{Arc, PoisonError};

use jiff::Timestamp;

use super::readers::PROFILES;
use super::{Inventory, readers};
use crate::aws::{InstanceProfile, LaunchTemplate, PolicyRole, Role, TemplatePin, TemplateVersion};

impl Inventory {
    /// A scaling group was created, updated or tagged, or one of its instances was changed.
    pub(crate) fn invalidate_group(&self, name: &str) {
        self.groups.invalidate(name);
    }

    /// AWS refused a call on an instance of the group because of a scaling activity in progress, or none was made during one.
    pub(crate) fn record_activity(&self, group: &str, instance: &str, now: Timestamp) {
        self.instances.lock().unwrap_or_else(PoisonError::into_inner).record_activity(instance, now);
        self.invalidate_group(group);
    }

    /// CreateAutoScalingGroup succeeded.
    pub(crate) fn record_created_group(&self, name: &str) {
        self.groups.invalidate(name);
        self.instances.lock().unwrap_or_else(PoisonError::into_inner).add_created_group(name);
    }

    /// The warm pool of a group was created, changed or deleted, or an instance in it was marked unhealthy.
    pub(crate) fn invalidate_warm_pool(&self, group: &str) {
        self.warm_pools.invalidate(group);
    }

    /// Lifecycle hooks of a group were created, changed or deleted.
    pub(crate) fn invalidate_hooks(&self, group: &str) {
        self.hooks.invalidate(group);
    }

    /// Drops all cached data of a deleted scaling group.
    pub(crate) fn forget_group(&self, name: &str) {
        self.groups.remove_where(|key| key == name);
        self.hooks.remove_where(|key| key == name);
        self.warm_pools.remove_where(|key| key == name);
        self.refreshes.remove_where(|key| key == name);
        self.activities.remove_where(|key| key == name);
        let removed = self.instances.lock().unwrap_or_else(PoisonError::into_inner).remove_group(name);
        self.launches.remove_where(|id| removed.iter().any(|r| r == id));
    }

    /// DeleteLaunchConfiguration succeeded.
    pub(crate) fn remove_launch_configuration(&self, name: &str) {
        self.launch_configurations.remove_where(|key| key == name);
    }

    /// A launch template was tagged.
    pub(crate) fn invalidate_template_by_id(&self, id: &str) {
        if let Some(name) = self.templates.key_where(|t| t.id == id) {
            self.templates.invalidate(&name);
        }
    }

    /// CreateLaunchTemplate succeeded.
    pub(crate) fn upsert_template(&self, template: LaunchTemplate) {
        let name = template.name.clone();
        self.templates.insert(&name, Some(template));
    }

    /// CreateLaunchTemplate or CreateLaunchTemplateVersion returned this version.
    pub(crate) fn upsert_version(&self, version: TemplateVersion) {
        let (id, number) = (version.template_id.clone(), version.number);
        self.versions.insert(&readers::version_key(&id, number), Some(Arc::new(version)));
        self.templates.update_where(|t| t.id == id, |t| t.latest_version = t.latest_version.max(number));
    }

    /// AWS refused to create or update the scaling group of an InstanceGroup with this launch template version.
    pub(crate) fn record_rejected_pin(&self, group: &str, pin: &TemplatePin) {
        self.rejected_pins.lock().unwrap_or_else(PoisonError::into_inner).insert(group.to_owned(), pin.clone());
    }

    /// The launch template version of an InstanceGroup's scaling group exists.
    pub(crate) fn forget_rejected_pin(&self, group: &str) {
        self.rejected_pins.lock().unwrap_or_else(PoisonError::into_inner).remove(group);
    }

    /// DeleteLaunchTemplateVersions succeeded.
    pub(crate) fn remove_versions(&self, template_id: &str, numbers: &[i64]) {
        self.versions.remove_where(|key| numbers.iter().any(|n| key == readers::version_key(template_id, *n)));
    }

    /// DeleteLaunchTemplate succeeded.
    pub(crate) fn remove_template(&self, template_id: &str) {
        self.default_versions.lock().unwrap_or_else(PoisonError::into_inner).remove(template_id);
        let prefix = format!("{template_id}/");
        self.versions.remove_where(|key| key.starts_with(&prefix));
        if let Some(name) = self.templates.key_where(|t| t.id == template_id) {
            self.templates.insert(&name, None);
        }
    }

    /// The role of an instance profile was changed, and the new role is unknown.
    pub(crate) fn invalidate_profile(&self, name: &str) {
        self.profiles.invalidate(PROFILES, name);
    }

    /// CreateInstanceProfile or GetInstanceProfile returned this profile.
    pub(crate) fn upsert_profile(&self, profile: InstanceProfile) {
        let name = profile.name.clone();
        self.profiles.insert(PROFILES, &name, Some(profile));
    }

    /// AddRoleToInstanceProfile succeeded.
    pub(crate) fn upsert_profile_role(&self, profile: &str, role: &Role) {
        self.set_profile_role(profile, Some(role.clone()));
    }

    /// RemoveRoleFromInstanceProfile succeeded.
    pub(crate) fn remove_profile_role(&self, profile: &str) {
        self.set_profile_role(profile, None);
    }

    /// DeleteInstanceProfile succeeded.
    pub(crate) fn remove_profile(&self, name: &str) {
        self.profiles.insert(PROFILES, name, None);
    }

    /// AttachRolePolicy succeeded.
    pub(crate) fn upsert_attached_policy(&self, role: &str, policy_arn: &str) {
        self.policies.insert(policy_arn, role, Some(PolicyRole { name: role.to_owned(), id: None }));
    }

    /// DetachRolePolicy succeeded.
    pub(crate) fn remove_attached_policy(&self, role: &str, policy_arn: &str) {
        self.policies.insert(policy_arn, role, None);
    }

    fn set_profile_role(&self, name: &str, role: Option<Role>) {
        match self.profiles.peek(PROFILES, name) {
            Some(profile) => self.profiles.insert(PROFILES, name, Some(InstanceProfile { role, ..profile })),
            None => self.profiles.invalidate(PROFILES, name),
        }
    }
}
