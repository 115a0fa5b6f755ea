//! Authorization of nodes to join the cluster: which entry a role needs, in aws-auth or as an access entry, and the
//! steps to create it.
//!
//! A role moves from one kind of entry to the other without a gap: the old entry is removed only after the new one is
//! observed. Only entries that this controller created are removed.

#[cfg(test)]
mod tests;

use clap::ValueEnum;
use jiff::{SignedDuration, Timestamp};

use super::aws_auth::{AuthEntry, AuthEntryState};
use crate::api::JoinStatus;
use crate::api::names::tag;
use crate::aws::{AccessEntry, AccessEntryType, NewAccessEntry, Tag, tag_map};
use crate::plan::{Drift, JoinStep, PlannedStep, Step};
use crate::util::lookup::Lookup;

/// How nodes are authorized to join the cluster: `--join-auth`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum JoinAuth {
    /// The cluster's authenticationMode decides.
    #[default]
    Auto,
    /// An entry in the ConfigMap kube-system/aws-auth.
    AwsAuth,
    /// An access entry of the EKS cluster.
    AccessEntries,
    /// Both kinds, during a migration from one to the other.
    Both,
}

impl JoinAuth {
    /// The value of the flag `--join-auth`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            JoinAuth::Auto => "auto",
            JoinAuth::AwsAuth => "aws-auth",
            JoinAuth::AccessEntries => "access-entries",
            JoinAuth::Both => "both",
        }
    }
}

/// Which kinds of entry the roles in one cluster need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinMethod {
    /// An entry in aws-auth.
    AwsAuth {
        /// Whether the controller's access entry is removed once the entry in aws-auth exists.
        remove_other: bool,
    },
    /// An access entry.
    AccessEntries {
        /// Whether the controller's entry in aws-auth is removed once the access entry exists.
        remove_other: bool,
    },
    /// One entry of each kind.
    Both,
    /// A role keeps the entry that it has; a role without one gets an access entry.
    Either,
}

/// The authenticationMode of a cluster that reads no access entries.
pub(crate) const CONFIG_MAP_MODE: &str = "CONFIG_MAP";

/// The authenticationMode of a cluster that does not read aws-auth.
pub(crate) const API_MODE: &str = "API";

/// A value of `--join-auth` that the cluster's authenticationMode does not support.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnsupportedMode {
    /// Why the cluster does not support it.
    pub rule: String,
    /// What the user can do.
    pub remedy: &'static str,
}

/// Which kinds of entry the flag and the cluster's authenticationMode require (Amazon EKS User Guide, "Grant IAM users
/// access to Kubernetes with EKS access entries").
///
/// # Errors
/// The cluster does not support what the flag requires.
pub(crate) fn join_method(requested: JoinAuth, authentication_mode: &str) -> Result<JoinMethod, UnsupportedMode> {
    match (authentication_mode, requested) {
        (API_MODE, JoinAuth::Auto) => Ok(JoinMethod::AccessEntries { remove_other: false }),
        // The cluster does not read aws-auth in this mode.
        (API_MODE, JoinAuth::Both) => Ok(JoinMethod::AccessEntries { remove_other: false }),
        (API_MODE, JoinAuth::AccessEntries) | ("API_AND_CONFIG_MAP", JoinAuth::AccessEntries) => {
            Ok(JoinMethod::AccessEntries { remove_other: true })
        }
        (API_MODE, JoinAuth::AwsAuth) => Err(UnsupportedMode {
            rule: "accepts only access entries (authenticationMode API), but --join-auth is aws-auth".into(),
            remedy: "set --join-auth to auto or access-entries",
        }),
        ("API_AND_CONFIG_MAP", JoinAuth::Auto) => Ok(JoinMethod::Either),
        ("API_AND_CONFIG_MAP", JoinAuth::AwsAuth) => Ok(JoinMethod::AwsAuth { remove_other: true }),
        ("API_AND_CONFIG_MAP", JoinAuth::Both) => Ok(JoinMethod::Both),
        (_, JoinAuth::Auto | JoinAuth::AwsAuth) => Ok(JoinMethod::AwsAuth { remove_other: false }),
        (mode, JoinAuth::AccessEntries | JoinAuth::Both) => Err(UnsupportedMode {
            rule: format!(
                "does not accept access entries (authenticationMode {mode}), but --join-auth is {}",
                requested.as_str()
            ),
            remedy: "set the cluster's authenticationMode to API_AND_CONFIG_MAP, or --join-auth to auto",
        }),
    }
}

/// What is known about a role's access entry.
pub type AccessEntryState = Lookup<RoleAccessEntry>;

/// The access entry of a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleAccessEntry {
    /// Type of the entry: `EC2_LINUX`, `STANDARD` and so on.
    pub kind: String,
    /// Whether the entry's tags prove that a group of this cluster created it; also false when the tags were not read.
    pub is_owned: bool,
    /// Creation time of the entry, if it was read.
    pub created_at: Option<Timestamp>,
    /// ID of the role that the controller created the entry for, from the entry's tags.
    pub role_id: Option<String>,
}

impl AccessEntryState {
    /// The state after a read; `None` means that the entry does not exist.
    pub(crate) fn from_entry(entry: Option<&AccessEntry>, cluster: &str) -> Self {
        match entry {
            None => AccessEntryState::Absent,
            Some(entry) => {
                let is_owned = is_owned_by_cluster(&entry.tags, cluster);
                let role_id = tag_map(&entry.tags).get(tag::ROLE_ID).map(|id| (*id).to_owned());
                AccessEntryState::Present(RoleAccessEntry {
                    kind: entry.kind.clone(),
                    is_owned,
                    created_at: entry.created,
                    role_id,
                })
            }
        }
    }

    /// The type of an existing entry; `None` if it does not exist or was not queried.
    pub fn kind(&self) -> Option<&str> {
        match self {
            AccessEntryState::Present(RoleAccessEntry { kind, .. }) => Some(kind),
            AccessEntryState::NotQueried | AccessEntryState::Absent => None,
        }
    }
}

/// Whether a group of this cluster created the resource with these tags. Groups can share a role, so it may be any
/// group.
pub(crate) fn is_owned_by_cluster(tags: &[Tag], cluster: &str) -> bool {
    let tags = tag_map(tags);
    tags.get(tag::CLUSTER_NAME) == Some(&cluster)
        && [tag::INSTANCE_GROUP, tag::NAMESPACE].iter().all(|key| tags.contains_key(key))
}

/// Whether an entry of type `kind` authorizes all nodes that an entry of type `found` does, and more.
fn supersedes(found: &str, kind: AccessEntryType) -> bool {
    found == AccessEntryType::Ec2Linux.as_str() && kind == AccessEntryType::Ec2Windows
}

/// The observed entries of a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedEntries {
    /// Its entry in aws-auth.
    pub auth_entry: AuthEntryState,
    /// Whether a group recorded that the controller added that entry.
    pub owns_auth_entry: bool,
    /// Whether someone else changed that entry, for example added a key. It then stays.
    pub is_auth_entry_modified: bool,
    /// Whether that entry also authorizes Windows nodes.
    pub allows_windows: bool,
    /// The role's access entry in EKS, as far as EKS was asked.
    pub access_entry: AccessEntryState,
    /// Whether another group uses the role.
    pub is_shared: bool,
    /// Whether every other group that uses the role has its access entry.
    pub peers_have_access_entry: bool,
    /// The current ID of the role, if known.
    pub role_id: Option<String>,
    /// Creation time of the role, if it was read.
    pub role_created_at: Option<Timestamp>,
}

impl ObservedEntries {
    /// Whether the access entry is to be replaced by one that lets nodes of the type `needed` join. What was seen of it
    /// earlier is not sufficient then: a person may have put another entry in its place. `owns_role`: whether the role
    /// belongs to the group.
    pub(crate) fn replaces_access_entry(&self, needed: AccessEntryType, owns_role: bool) -> bool {
        match &self.access_entry {
            AccessEntryState::Present(entry) => {
                self.is_of_deleted_role(entry, owns_role) || self.has_replaceable_type(entry, self.access_kind(needed))
            }
            AccessEntryState::NotQueried | AccessEntryState::Absent => false,
        }
    }

    /// The type of access entry that authorizes all nodes of the role; those of the group need the type `needed`. An access
    /// entry takes effect at once and overrides the entry in aws-auth.
    fn access_kind(&self, needed: AccessEntryType) -> AccessEntryType {
        match needed {
            AccessEntryType::Ec2Linux if self.allows_windows => AccessEntryType::Ec2Windows,
            kind => kind,
        }
    }

    /// Whether an entry belongs to a deleted role of the same name. Without the controller's tag, the creation times decide:
    /// EKS accepts an entry only for an existing role, so an older entry is of an earlier one. The entries of a
    /// group's own role are replaced in either case.
    fn is_of_deleted_role(&self, entry: &RoleAccessEntry, owns_role: bool) -> bool {
        match (&entry.role_id, &self.role_id) {
            (Some(id), Some(current)) if entry.is_owned => id != current,
            _ => owns_role && entry.created_at.is_some_and(|at| Some(at) < self.role_created_at),
        }
    }

    /// Whether an entry of the controller does not let nodes of the type `kind` join, and may be replaced. The type cannot be
    /// changed. The new one must also allow the nodes of other groups that share the role.
    fn has_replaceable_type(&self, entry: &RoleAccessEntry, kind: AccessEntryType) -> bool {
        let is_replaceable = !self.is_shared || supersedes(&entry.kind, kind);
        entry.is_owned && !kind.allows(&entry.kind) && is_replaceable
    }
}

/// Plans the entries of a role from the inputs that they depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JoinPlanner<'a> {
    /// Which kinds of entry the role needs.
    pub method: JoinMethod,
    /// The desired entry in aws-auth.
    pub auth_entry: &'a AuthEntry,
    /// The desired access entry.
    pub access_entry: &'a NewAccessEntry,
    /// What aws-auth and EKS contain for the role now.
    pub observed: &'a ObservedEntries,
    /// Whether the role, and thus its entries, belong to this group.
    pub owns_role: bool,
    /// Whether the role has propagated in IAM. Before that, EKS rejects an access entry for it.
    pub role_propagated: bool,
    /// Minimum age of an access entry before the entry in aws-auth is removed.
    pub handover_delay: SignedDuration,
    /// Reference time of the decision.
    pub now: Timestamp,
}

/// The steps for a role's entries.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct JoinPlan {
    /// Steps in the order in which they must be applied.
    pub steps: Vec<PlannedStep>,
    /// Why nodes with this role cannot join without manual intervention: where the conflict is, and the remedy.
    pub conflict: Option<String>,
    /// When the entry in aws-auth may be removed, if only `handover_delay` prevents the removal.
    pub recheck_at: Option<Timestamp>,
}

impl JoinMethod {
    /// Whether the role's access entry must be queried, given its entry in aws-auth and whether the controller recorded
    /// an entry of each kind. Groups that join through aws-auth cause no call.
    pub(crate) fn queries_access_entry(
        self,
        auth: &AuthEntryState,
        owns_auth_entry: bool,
        owns_access_entry: bool,
    ) -> bool {
        match self {
            JoinMethod::AwsAuth { remove_other } => remove_other && owns_access_entry,
            JoinMethod::AccessEntries { .. } | JoinMethod::Both => true,
            JoinMethod::Either => *auth != AuthEntryState::Present && !owns_auth_entry,
        }
    }

    /// Whether an access entry that nothing else queries may override the role's entry in aws-auth. The controller needs
    /// its permissions for access entries with this method anyway.
    pub(crate) fn may_be_overridden(self) -> bool {
        match self {
            JoinMethod::Either => true,
            JoinMethod::AwsAuth { .. } | JoinMethod::AccessEntries { .. } | JoinMethod::Both => false,
        }
    }

    /// Whether an observation may cause the removal of an entry, so that a cached read is not sufficient.
    pub(crate) fn needs_fresh_read(self, auth: &AuthEntryState, owns_auth_entry: bool) -> bool {
        match self {
            JoinMethod::AwsAuth { remove_other } => remove_other,
            JoinMethod::AccessEntries { remove_other } => {
                remove_other && *auth == AuthEntryState::Present && owns_auth_entry
            }
            JoinMethod::Both | JoinMethod::Either => false,
        }
    }
}

/// The entries that a role needs, so that its nodes may join.
struct RequiredEntries {
    /// An entry in aws-auth.
    aws_auth: bool,
    /// An access entry.
    access_entry: bool,
}

impl JoinPlanner<'_> {
    /// Which entries the role needs.
    fn required_entries(&self) -> RequiredEntries {
        match self.method {
            JoinMethod::AwsAuth { .. } => RequiredEntries { aws_auth: true, access_entry: false },
            JoinMethod::AccessEntries { .. } => RequiredEntries { aws_auth: false, access_entry: true },
            JoinMethod::Both => RequiredEntries { aws_auth: true, access_entry: true },
            JoinMethod::Either => {
                let ObservedEntries { auth_entry, owns_auth_entry, access_entry, .. } = self.observed;
                let allowed = access_entry.kind().is_some_and(|kind| self.access_entry.kind.allows(kind));
                let aws_auth = (*auth_entry != AuthEntryState::Absent || *owns_auth_entry) && !allowed;
                RequiredEntries { aws_auth, access_entry: !aws_auth }
            }
        }
    }

    /// Plans the steps for the role's entries. A superseded entry is removed only by a plan without other steps.
    pub(crate) fn plan(&self) -> JoinPlan {
        let RequiredEntries { aws_auth, access_entry } = self.required_entries();
        let mut plan = JoinPlan::default();
        if aws_auth {
            self.add_auth_entry(&mut plan);
        }
        if access_entry {
            self.add_access_entry(&mut plan);
        } else if self.method.may_be_overridden() && plan.conflict.is_none() {
            plan.conflict = self.overriding_entry();
        }
        if plan.steps.is_empty() && plan.conflict.is_none() {
            self.remove_superseded(&mut plan);
        }
        plan
    }

    /// What is wrong with an access entry that overrides the entry in aws-auth and lets no node of the group join.
    fn overriding_entry(&self) -> Option<String> {
        let NewAccessEntry { cluster, principal, kind, .. } = self.access_entry;
        let found = self.observed.access_entry.kind().filter(|found| !kind.allows(found))?;
        Some(format!(
            "the access entry of {principal} in the cluster {cluster} has the type {found} and overrides the role's entry in aws-auth, but these nodes need {}; delete it, or give the group another role",
            kind.as_str()
        ))
    }

    fn add_auth_entry(&self, plan: &mut JoinPlan) {
        match &self.observed.auth_entry {
            AuthEntryState::Present => {}
            AuthEntryState::Absent => plan.steps.push(PlannedStep::new(
                JoinStep::PutAwsAuthEntry(self.auth_entry.clone()),
                vec![Drift::new("aws-auth", "", &self.auth_entry.role_arn)],
            )),
            // The role is the group's alone, as the entry is that the Keiko controller added for it.
            AuthEntryState::Narrow { .. } if self.observed.owns_auth_entry || self.owns_role => {
                plan.steps.push(PlannedStep::new(
                    JoinStep::WidenAwsAuthEntry(self.auth_entry.clone()),
                    vec![Drift::new("aws-auth", "an entry with fewer groups", &self.auth_entry.role_arn)],
                ))
            }
            AuthEntryState::Narrow { detail }
            | AuthEntryState::Conflict { detail }
            | AuthEntryState::Unparsable { detail } => {
                plan.conflict = Some(detail.clone());
            }
        }
    }

    fn add_access_entry(&self, plan: &mut JoinPlan) {
        let NewAccessEntry { cluster, principal, kind: needed, .. } = self.access_entry;
        let kind = self.observed.access_kind(*needed);
        let to = format!("{} {principal}", kind.as_str());
        let put = |from: &str| {
            let mut entry = NewAccessEntry { kind, ..self.access_entry.clone() };
            let role_id = self.observed.role_id.iter();
            entry.tags.extend(role_id.map(|id| Tag { key: tag::ROLE_ID.into(), value: id.clone() }));
            PlannedStep::new(JoinStep::PutAccessEntry(entry), vec![Drift::new("access entry", from, &to)])
        };
        match &self.observed.access_entry {
            AccessEntryState::NotQueried => {}
            AccessEntryState::Absent => plan.steps.extend(self.role_propagated.then(|| put(""))),
            // The entry belongs to a deleted role of the same name and does not authorize the current role.
            AccessEntryState::Present(entry) if self.role_propagated && self.is_of_deleted_role(entry) => {
                let of = entry.role_id.as_ref().map_or("of a deleted role".into(), |id| format!("of the role {id}"));
                plan.steps.extend([self.remove_access_entry().into(), put(&of)]);
            }
            AccessEntryState::Present(entry)
                if self.role_propagated && self.observed.has_replaceable_type(entry, kind) =>
            {
                plan.steps.extend([self.remove_access_entry().into(), put(&entry.kind)]);
            }
            AccessEntryState::Present(RoleAccessEntry { kind: found, .. }) if needed.allows(found) => {}
            AccessEntryState::Present(RoleAccessEntry { kind: found, .. }) => {
                plan.conflict = Some(format!(
                    "the access entry of {principal} in the cluster {cluster} has the type {found}, but these nodes need {}; \
                     delete it so that the controller creates one of the right type, or give the group another role",
                    needed.as_str()
                ));
            }
        }
    }

    /// Whether an entry belongs to a deleted role of the same name.
    fn is_of_deleted_role(&self, entry: &RoleAccessEntry) -> bool {
        self.observed.is_of_deleted_role(entry, self.owns_role)
    }

    /// Removes the controller's entry of the kind that is no longer needed, once the other entry exists.
    fn remove_superseded(&self, plan: &mut JoinPlan) {
        let ObservedEntries { auth_entry, owns_auth_entry, access_entry, peers_have_access_entry, .. } = self.observed;
        // Nodes join without the entry, so nothing waits until it is removed.
        let planned = |from: &str, to: &str, step: JoinStep| {
            PlannedStep::new(step, vec![Drift::new("join", from, to)]).optional()
        };
        match (self.method, auth_entry, access_entry) {
            (
                JoinMethod::AwsAuth { remove_other: true },
                AuthEntryState::Present,
                AccessEntryState::Present(RoleAccessEntry { is_owned: true, kind, .. }),
            ) if !self.serves_windows_of_others(kind) => {
                plan.steps.push(planned("access entry", "aws-auth", self.remove_access_entry()));
            }
            (
                JoinMethod::AccessEntries { remove_other: true },
                AuthEntryState::Present,
                AccessEntryState::Present(RoleAccessEntry { created_at, .. }),
            ) if *peers_have_access_entry
                && (*owns_auth_entry || self.owns_role)
                && !self.observed.is_auth_entry_modified =>
            {
                let handover = created_at.map(|created| created + self.handover_delay).filter(|at| *at > self.now);
                plan.recheck_at = handover;
                let step = JoinStep::RemoveAwsAuthEntry(self.auth_entry.clone());
                plan.steps.extend(handover.is_none().then(|| planned("aws-auth", "access entry", step)));
            }
            _ => {}
        }
    }

    /// Whether Windows nodes of another group may join through an entry of this type alone.
    fn serves_windows_of_others(&self, found: &str) -> bool {
        let is_of_windows = found == AccessEntryType::Ec2Windows.as_str();
        is_of_windows
            && self.access_entry.kind == AccessEntryType::Ec2Linux
            && self.observed.is_shared
            && !self.observed.allows_windows
    }

    fn remove_access_entry(&self) -> JoinStep {
        let NewAccessEntry { cluster, principal, .. } = self.access_entry;
        JoinStep::RemoveAccessEntry { cluster: cluster.clone(), principal: principal.clone() }
    }

    /// ARNs of the roles with an entry in aws-auth that the controller owns after the steps, for
    /// `status.managed.authEntries`. `old` is the recorded value.
    pub(crate) fn owned_auth_entries(&self, plan: &JoinPlan, role_arn: &str, old: &[String]) -> Vec<String> {
        let puts_entry =
            |step: &Step| matches!(step, Step::Join(JoinStep::PutAwsAuthEntry(_) | JoinStep::WidenAwsAuthEntry(_)));
        let adds_entry = plan.steps.iter().any(|p| puts_entry(&p.step));
        match (adds_entry, &self.observed.auth_entry) {
            (true, _) => vec![role_arn.to_owned()],
            (false, AuthEntryState::Absent) => Vec::new(),
            // It is not removed when access entries replace it, so it is the entry of the person who changed it.
            (false, AuthEntryState::Present)
                if self.observed.is_auth_entry_modified && !self.required_entries().aws_auth =>
            {
                Vec::new()
            }
            (false, _) if self.observed.owns_auth_entry => vec![role_arn.to_owned()],
            (
                false,
                AuthEntryState::Present
                | AuthEntryState::Narrow { .. }
                | AuthEntryState::Conflict { .. }
                | AuthEntryState::Unparsable { .. },
            ) => old.to_vec(),
        }
    }

    /// ARNs of the roles with an access entry that the controller owns after the steps, for
    /// `status.managed.accessEntries`. `old` is the recorded value.
    pub(crate) fn owned_access_entries(&self, plan: &JoinPlan, old: &[String]) -> Vec<String> {
        let role = || vec![self.access_entry.principal.clone()];
        let adds_entry = plan.steps.iter().any(|p| matches!(p.step, Step::Join(JoinStep::PutAccessEntry(_))));
        match (adds_entry, &self.observed.access_entry) {
            (true, _) | (false, AccessEntryState::Present(RoleAccessEntry { is_owned: true, .. })) => role(),
            (false, AccessEntryState::Absent) => Vec::new(),
            (
                false,
                AccessEntryState::NotQueried | AccessEntryState::Present(RoleAccessEntry { is_owned: false, .. }),
            ) => old.to_vec(),
        }
    }

    /// The observed entries of the role, for `status.join`. `None` if its access entry was never queried.
    pub(crate) fn join_status(&self, recorded: Option<&JoinStatus>) -> Option<JoinStatus> {
        let access_entry = match (&self.observed.access_entry, recorded) {
            (AccessEntryState::NotQueried, None) => return None,
            (AccessEntryState::NotQueried, Some(old)) => old.access_entry.clone(),
            (AccessEntryState::Absent, _) => None,
            // The nodes cannot join through an entry of a type that does not allow them.
            (AccessEntryState::Present(RoleAccessEntry { kind, .. }), _) => {
                Some(kind.clone()).filter(|kind| self.access_entry.kind.allows(kind))
            }
        };
        // The entry of a deleted role must not be recorded as an entry of the current role.
        let is_of_other_role = |entry: &RoleAccessEntry| {
            entry.role_id.as_ref().is_some_and(|id| self.observed.role_id.as_ref() != Some(id))
                || self.is_of_deleted_role(entry)
        };
        let of_deleted_role =
            matches!(&self.observed.access_entry, AccessEntryState::Present(entry) if is_of_other_role(entry));
        let role_id = self.observed.role_id.clone().filter(|_| access_entry.is_some() && !of_deleted_role);
        let aws_auth = match &self.observed.auth_entry {
            AuthEntryState::Present => true,
            // The entry may be there as before.
            AuthEntryState::Unparsable { .. } => recorded.is_none_or(|old| old.aws_auth),
            AuthEntryState::Absent | AuthEntryState::Narrow { .. } | AuthEntryState::Conflict { .. } => false,
        };
        Some(JoinStatus { aws_auth, access_entry, role_id })
    }
}
