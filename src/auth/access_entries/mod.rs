//! Aws-auth or access entries: which kind of entry a role is to have, and what is to be done for it.
//!
//! A role moves from one kind to the other without a gap: the new entry is seen before the old one is taken out, and
//! only what this controller put there is ever taken out.

#[cfg(test)]
mod tests;

use clap::ValueEnum;
use jiff::{SignedDuration, Timestamp};

use super::aws_auth::{AuthEntry, EntryState};
use crate::api::JoinStatus;
use crate::api::names::tag;
use crate::aws::{AccessEntry, AccessKind, NewAccessEntry, Tag, tag_map};
use crate::plan::{Drift, JoinStep, Planned, Step};

/// How nodes get the right to join the cluster: `--join-auth`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum JoinAuth {
    /// What the cluster reads: its authenticationMode decides.
    #[default]
    Auto,
    /// An entry in the ConfigMap kube-system/aws-auth.
    AwsAuth,
    /// An access entry of the EKS cluster.
    AccessEntries,
    /// Both, while moving from one to the other.
    Both,
}

impl JoinAuth {
    /// As the flag takes it.
    pub fn as_str(self) -> &'static str {
        match self {
            JoinAuth::Auto => "auto",
            JoinAuth::AwsAuth => "aws-auth",
            JoinAuth::AccessEntries => "access-entries",
            JoinAuth::Both => "both",
        }
    }
}

/// Which kinds of entry roles of one cluster are to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// An entry in aws-auth.
    AwsAuth {
        /// Our access entry is taken out once the entry in aws-auth is there.
        retire: bool,
    },
    /// An access entry.
    AccessEntries {
        /// Our entry in aws-auth is taken out once the access entry is there.
        retire: bool,
    },
    /// One of each.
    Both,
    /// What a role has stays; a role that has neither gets an access entry.
    Either,
}

/// A way that the cluster does not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// What the cluster does not do.
    pub rule: String,
    /// What a person can do.
    pub remedy: &'static str,
}

/// Which kinds of entry a cluster's authenticationMode and the flag ask for (Amazon EKS User Guide, "Grant IAM users
/// access to Kubernetes with EKS access entries").
///
/// # Errors
/// The cluster does not read what the flag asks for.
pub fn way(asked: JoinAuth, authentication_mode: &str) -> Result<Way, Unread> {
    match (authentication_mode, asked) {
        ("API", JoinAuth::Auto) => Ok(Way::AccessEntries { retire: false }),
        // What is written into aws-auth would be read by nobody.
        ("API", JoinAuth::Both) => Ok(Way::AccessEntries { retire: false }),
        ("API", JoinAuth::AccessEntries) | ("API_AND_CONFIG_MAP", JoinAuth::AccessEntries) => {
            Ok(Way::AccessEntries { retire: true })
        }
        ("API", JoinAuth::AwsAuth) => Err(Unread {
            rule: "takes access entries only (authenticationMode API), and --join-auth is aws-auth".into(),
            remedy: "set --join-auth to auto or access-entries",
        }),
        ("API_AND_CONFIG_MAP", JoinAuth::Auto) => Ok(Way::Either),
        ("API_AND_CONFIG_MAP", JoinAuth::AwsAuth) => Ok(Way::AwsAuth { retire: true }),
        ("API_AND_CONFIG_MAP", JoinAuth::Both) => Ok(Way::Both),
        (_, JoinAuth::Auto | JoinAuth::AwsAuth) => Ok(Way::AwsAuth { retire: false }),
        (mode, JoinAuth::AccessEntries | JoinAuth::Both) => Err(Unread {
            rule: format!("takes no access entries (authenticationMode {mode}), and --join-auth is {}", asked.as_str()),
            remedy: "set the cluster's authenticationMode to API_AND_CONFIG_MAP, or --join-auth to auto",
        }),
    }
}

/// What is known of a role's access entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Nobody had a reason to look.
    #[default]
    Unasked,
    /// The cluster has none for this role.
    Absent,
    /// It is there.
    Present {
        /// `EC2_LINUX`, `STANDARD` and so on.
        kind: String,
        /// Its tags prove that a group of this cluster made it; false as well where nobody had a reason to read them.
        ours: bool,
        /// When it was made, where it was read.
        created: Option<Timestamp>,
        /// The id of the role that we made it for, where its tags tell.
        role_id: Option<String>,
    },
}

impl Access {
    /// An entry that was read.
    pub fn of(entry: Option<&AccessEntry>, cluster: &str) -> Self {
        match entry {
            None => Access::Absent,
            Some(entry) => {
                let ours = ours(&entry.tags, cluster);
                let role_id = tag_map(&entry.tags).get(tag::ROLE_ID).map(|id| (*id).to_owned());
                Access::Present { kind: entry.kind.clone(), ours, created: entry.created, role_id }
            }
        }
    }

    /// The type of the entry that is there.
    pub fn kind(&self) -> Option<&str> {
        match self {
            Access::Present { kind, .. } => Some(kind),
            Access::Unasked | Access::Absent => None,
        }
    }
}

/// Whether a group of this cluster made what carries these tags: one of those that share the role, whichever it was.
pub fn ours(tags: &[Tag], cluster: &str) -> bool {
    let tags = tag_map(tags);
    tags.get(tag::CLUSTER_NAME) == Some(&cluster)
        && [tag::INSTANCE_GROUP, tag::NAMESPACE].iter().all(|key| tags.contains_key(key))
}

/// Whether an entry of this type lets in whoever joined by the one before it, and more.
fn widens(found: &str, kind: AccessKind) -> bool {
    found == AccessKind::Ec2Linux.as_str() && kind == AccessKind::Ec2Windows
}

/// What was seen of a role's entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its entry in aws-auth.
    pub auth: EntryState,
    /// A group of ours has recorded that it put that entry there.
    pub auth_is_ours: bool,
    /// Windows nodes join by that entry too.
    pub windows: bool,
    /// Its access entry.
    pub access: Access,
    /// Another group uses the role.
    pub shared: bool,
    /// Every other group that uses the role has its access entry.
    pub others_have_it: bool,
    /// The id that the role has now, where it is known.
    pub role_id: Option<String>,
}

/// A role and everything that its entries depend on.
#[derive(Clone, Copy, Debug)]
pub struct Joining<'a> {
    /// Which kinds of entry it is to have.
    pub way: Way,
    /// The entry that it is to have in aws-auth.
    pub entry: &'a AuthEntry,
    /// The access entry that it is to have.
    pub wanted: &'a NewAccessEntry,
    /// What there is.
    pub found: &'a Found,
    /// The role is this group's own, and its entries with it.
    pub own_role: bool,
    /// IAM knows the role everywhere; before that, EKS refuses an access entry for it.
    pub settled: bool,
    /// How long an access entry must have been there before the entry in aws-auth goes.
    pub handover: SignedDuration,
    /// The moment of the decision.
    pub now: Timestamp,
}

/// What is to be done for a role.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Joined {
    /// In order: what is put comes first.
    pub steps: Vec<Planned>,
    /// Why nodes with this role cannot join until a person acts, where the conflict is, and the remedy.
    pub conflict: Option<String>,
    /// When the old entry may go.
    pub wake: Option<Timestamp>,
}

impl Way {
    /// Whether a role's access entry is to be looked at, given its entry in aws-auth and whether we recorded one of each
    /// kind. Groups that join by aws-auth cost no call.
    pub fn looks(self, auth: &EntryState, auth_is_ours: bool, access_is_ours: bool) -> bool {
        match self {
            Way::AwsAuth { retire } => retire && access_is_ours,
            Way::AccessEntries { .. } | Way::Both => true,
            Way::Either => *auth != EntryState::Present && !auth_is_ours,
        }
    }

    /// Whether something may be taken out because of what is seen, so that an old look is not good enough.
    pub fn needs_fresh(self, auth: &EntryState, auth_is_ours: bool) -> bool {
        match self {
            Way::AwsAuth { retire } => retire,
            Way::AccessEntries { retire } => retire && *auth == EntryState::Present && auth_is_ours,
            Way::Both | Way::Either => false,
        }
    }
}

impl Joining<'_> {
    /// Which entries the role is to have: in aws-auth, and as an access entry.
    fn wants(&self) -> (bool, bool) {
        match self.way {
            Way::AwsAuth { .. } => (true, false),
            Way::AccessEntries { .. } => (false, true),
            Way::Both => (true, true),
            Way::Either => {
                let Found { auth, auth_is_ours, access, .. } = self.found;
                let admitted = access.kind().is_some_and(|kind| self.wanted.kind.admits(kind));
                let aws_auth = (*auth != EntryState::Absent || *auth_is_ours) && !admitted;
                (aws_auth, !aws_auth)
            }
        }
    }

    /// Decides.
    pub fn decide(&self) -> Joined {
        let (aws_auth, access_entry) = self.wants();
        let mut joined = Joined::default();
        if aws_auth {
            self.put_in_aws_auth(&mut joined);
        }
        if access_entry {
            self.put_access_entry(&mut joined);
        }
        if joined.steps.is_empty() && joined.conflict.is_none() {
            self.retire(&mut joined);
        }
        joined
    }

    fn put_in_aws_auth(&self, joined: &mut Joined) {
        match &self.found.auth {
            EntryState::Present => {}
            EntryState::Absent => joined.steps.push(Planned::new(
                JoinStep::PutAuthEntry(self.entry.clone()),
                vec![Drift::new("aws-auth", "", &self.entry.role_arn)],
            )),
            EntryState::Conflict { detail } | EntryState::Unparsable { detail } => {
                joined.conflict = Some(format!("kube-system/aws-auth: {detail}"));
            }
        }
    }

    /// The type that lets in all nodes of the role: an access entry counts at once, and more than the entry in aws-auth.
    fn kind(&self) -> AccessKind {
        match self.wanted.kind {
            AccessKind::Ec2Linux if self.found.windows => AccessKind::Ec2Windows,
            kind => kind,
        }
    }

    fn put_access_entry(&self, joined: &mut Joined) {
        let (NewAccessEntry { cluster, principal, kind: needed, .. }, kind) = (self.wanted, self.kind());
        let to = format!("{} {principal}", kind.as_str());
        let put = |from: &str| {
            let mut entry = NewAccessEntry { kind, ..self.wanted.clone() };
            let id = self.found.role_id.iter().map(|id| Tag { key: tag::ROLE_ID.into(), value: id.clone() });
            entry.tags.extend(id);
            Planned::new(JoinStep::PutAccessEntry(entry), vec![Drift::new("access entry", from, &to)])
        };
        match &self.found.access {
            Access::Unasked => {}
            Access::Absent => joined.steps.extend(self.settled.then(|| put(""))),
            // It lets in a role that is gone, and nobody else.
            Access::Present { ours: true, role_id: Some(id), .. }
                if self.settled && self.found.role_id.as_ref().is_some_and(|now| now != id) =>
            {
                joined.steps.extend([self.remove_access_entry().into(), put(&format!("of the role {id}"))]);
            }
            // Its type cannot be changed. Where others' nodes join by it as well, the next one lets them in too.
            Access::Present { kind: found, ours: true, .. }
                if self.settled && !kind.admits(found) && (!self.found.shared || widens(found, kind)) =>
            {
                joined.steps.extend([self.remove_access_entry().into(), put(found)]);
            }
            Access::Present { kind: found, .. } if needed.admits(found) => {}
            Access::Present { kind: found, .. } => {
                joined.conflict = Some(format!(
                    "the access entry of {principal} in the cluster {cluster} has the type {found}, and these nodes need {}; delete \
                     it, and one of the right type is made, or give the group another role",
                    needed.as_str()
                ));
            }
        }
    }

    /// What is ours and not wanted any more goes while the role's other entry is there.
    fn retire(&self, joined: &mut Joined) {
        let Found { auth, auth_is_ours, access, others_have_it, .. } = self.found;
        let moved = |from: &str, to: &str, step: JoinStep| Planned::new(step, vec![Drift::new("join", from, to)]);
        match (self.way, auth, access) {
            (Way::AwsAuth { retire: true }, EntryState::Present, Access::Present { ours: true, .. }) => {
                joined.steps.push(moved("access entry", "aws-auth", self.remove_access_entry()));
            }
            (Way::AccessEntries { retire: true }, EntryState::Present, Access::Present { created, .. })
                if *others_have_it && (*auth_is_ours || self.own_role) =>
            {
                let due = created.map(|made| made + self.handover).filter(|due| *due > self.now);
                joined.wake = due;
                let step = JoinStep::RemoveAuthEntry(self.entry.clone());
                joined.steps.extend(due.is_none().then(|| moved("aws-auth", "access entry", step)));
            }
            _ => {}
        }
    }

    fn remove_access_entry(&self) -> JoinStep {
        let NewAccessEntry { cluster, principal, .. } = self.wanted;
        JoinStep::RemoveAccessEntry { cluster: cluster.clone(), principal: principal.clone() }
    }

    /// Roles whose entry in aws-auth is ours once the steps are done, for `status.managed.authEntries`.
    pub fn auth_entries(&self, joined: &Joined, role_arn: &str, old: &[String]) -> Vec<String> {
        let puts = joined.steps.iter().any(|p| matches!(p.step, Step::Join(JoinStep::PutAuthEntry(_))));
        match (puts, &self.found.auth) {
            (true, _) => vec![role_arn.to_owned()],
            (false, EntryState::Absent) => Vec::new(),
            (false, _) if self.found.auth_is_ours => vec![role_arn.to_owned()],
            (false, EntryState::Present | EntryState::Conflict { .. } | EntryState::Unparsable { .. }) => old.to_vec(),
        }
    }

    /// Roles whose access entry is ours once the steps are done, for `status.managed.accessEntries`.
    pub fn access_entries(&self, joined: &Joined, old: &[String]) -> Vec<String> {
        let role = || vec![self.wanted.principal.clone()];
        let puts = joined.steps.iter().any(|p| matches!(p.step, Step::Join(JoinStep::PutAccessEntry(_))));
        match (puts, &self.found.access) {
            (true, _) | (false, Access::Present { ours: true, .. }) => role(),
            (false, Access::Absent) => Vec::new(),
            (false, Access::Unasked | Access::Present { ours: false, .. }) => old.to_vec(),
        }
    }

    /// How the role joins now, for `status.join`; nothing where nobody ever looked at access entries.
    pub fn told(&self, remembered: Option<&JoinStatus>) -> Option<JoinStatus> {
        let access_entry = match (&self.found.access, remembered) {
            (Access::Unasked, None) => return None,
            (Access::Unasked, Some(old)) => old.access_entry.clone(),
            (Access::Absent, _) => None,
            // By one of another type its nodes do not join.
            (Access::Present { kind, .. }, _) => Some(kind.clone()).filter(|kind| self.wanted.kind.admits(kind)),
        };
        // A later look must not take an entry of the role before this one for an entry of this one.
        let replaced = matches!(&self.found.access, Access::Present { role_id: Some(id), .. }
            if self.found.role_id.as_ref() != Some(id));
        let role_id = self.found.role_id.clone().filter(|_| access_entry.is_some() && !replaced);
        Some(JoinStatus { aws_auth: self.found.auth == EntryState::Present, access_entry, role_id })
    }
}
