//! Looks: first what names mean, then what there is. No decision is made here.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::try_join_all;

use super::desired::Wanted;
use super::names::ProfileNames;
use super::observed::{FormerRole, Found, State, remembered_role};
use super::ownership::{Evidence, Left};
use super::resolve::{Environment, Resolved};
use crate::api::InstanceGroupStatus;
use crate::auth::aws_auth::{self, AuthEntry, EntryState};
use crate::aws::fargate::{FargateProfile, RouteTable};
use crate::aws::{AccessEntry, NetworkObject, Role, Tag};
use crate::index::groups::{Fate, Queue, bequeathed, fate};
use crate::ownership::{foreign, owned, taken_over};
use crate::provisioner::observe::{ObserveError, Observed, Observer};
use crate::provisioner::{GroupId, join};

/// Nothing of a profile but its tags can change: in quiet it is looked at again after this long.
const QUIET: Duration = Duration::from_secs(3600);

/// What names mean: cluster and network.
pub async fn environment(o: &Observer<'_>, wanted: &Wanted) -> Observed<Environment> {
    let aws = ObserveError::Aws;
    let Some(cluster) = o.inventory.cluster(&wanted.cluster).await.map_err(aws)? else {
        return Ok(Environment::default());
    };
    let mut subnets = o.inventory.subnets(&cluster.vpc).await.map_err(aws)?;
    let known = |all: &[NetworkObject], name: &String| {
        all.iter().any(|o| o.id == *name || o.name.as_deref().is_some_and(|n| n.eq_ignore_ascii_case(name)))
    };
    if !wanted.subnets.iter().all(|name| known(&subnets, name)) {
        subnets = o.inventory.refresh_network(&cluster.vpc).await.map_err(aws)?.0;
    }
    let strangers = wanted.subnets.iter().filter(|name| name.starts_with("subnet-") && !known(&subnets, name));
    let elsewhere = try_join_all(strangers.map(|id| o.inventory.network_object(id))).await.map_err(aws)?;
    Ok(Environment {
        cluster: Some(cluster),
        subnets: subnets.to_vec(),
        elsewhere: elsewhere.into_iter().flatten().collect(),
    })
}

/// What there is of one group.
pub async fn state(o: &Observer<'_>, r: &Resolved, status: &InstanceGroupStatus) -> Observed<State> {
    let aws = ObserveError::Aws;
    let age = if o.max_age < o.resync { o.max_age } else { QUIET };
    let profiles = profiles(o, &r.wanted.cluster, &r.names, status, (o.max_age, age)).await?;
    let policies = std::slice::from_ref(&r.policy);
    let role_ready =
        r.own_role && !o.inventory.attached(&r.names.role, policies, age.max(o.resync)).await.map_err(aws)?.is_empty();
    let recorded = status.managed.iter().flat_map(|m| &m.auth_entries);
    let key = r.wanted.id.key();
    let mut found = None;
    if r.own_role && !role_ready {
        found = o.inventory.aws().iam.get_role(&r.names.role).await.map_err(aws)?;
    }
    let role_id = role_id(o, r, role_ready, found.as_ref(), status).await?;
    let asked = join::Asked {
        key: &key,
        way: r.way,
        entry: &r.auth,
        wanted: &r.access,
        own_role: r.own_role,
        role_id: role_id.as_deref(),
    };
    let before = recorded.filter(|arn| **arn != r.role_arn);
    let (going, kept_auth) = former(o, &r.wanted.id, before, |arn, key| o.groups.authorised_by(arn, key));
    let (former_access, kept_access) = former_access(o, r, status).await?;
    let mut state = State {
        profiles,
        role_ready,
        role: found,
        join: join::look(o, asked, status).await?,
        former_access,
        former_auth: going.into_iter().filter_map(|arn| entry(o, arn)).collect(),
        kept_auth,
        kept_access,
        former_role: None,
        derived_role_shared: o.groups.shares_role(&r.derived_role_arn, &key)
            || !o.groups.authorised_by(&r.derived_role_arn, &key).is_empty()
            || !o.groups.admitted_by(&r.derived_role_arn, &key).is_empty(),
        tagging_rests: o.memory.tagging_rests(&r.wanted.id.key(), o.resync, o.now),
        queue: queue(o, &r.wanted.id, &r.wanted.cluster, status),
    };
    let untagged = Found::of(r, &state, status).untagged.is_some() && !state.tagging_rests;
    if r.own_role && role_ready && untagged {
        state.role = o.inventory.aws().iam.get_role(&r.names.role).await.map_err(aws)?;
    }
    let had_one = status.managed.as_ref().is_some_and(|m| !m.policies.is_empty());
    if had_one && !r.uses_derived_role() && !state.derived_role_shared {
        state.former_role = role(o, &r.names.role, &r.ownership, status).await?;
    }
    Ok(state)
}

/// The id of our own role, where access entries play a part: EKS lets in the very role that an entry was made for. Once it
/// is known the status tells it, until the role is made anew.
async fn role_id(
    o: &Observer<'_>,
    r: &Resolved,
    role_ready: bool,
    role: Option<&Role>,
    status: &InstanceGroupStatus,
) -> Observed<Option<String>> {
    if !r.own_role || !role_ready {
        return Ok(role.map(|role| role.id.clone()));
    }
    if let Some(id) = remembered_role(status, &r.role_arn) {
        return Ok(Some(id.clone()));
    }
    let recorded = status.managed.as_ref().is_some_and(|m| m.access_entries.contains(&r.role_arn));
    if !r.way.looks(&aws_auth::state(o.map_roles, &r.auth), o.groups.authorised(&r.role_arn), recorded) {
        return Ok(None);
    }
    let role = o.inventory.aws().iam.get_role(&r.names.role).await.map_err(ObserveError::Aws)?;
    Ok(role.map(|role| role.id))
}

/// The route tables of the cluster's VPC, when a profile is about to be made in subnets of the group's choice.
pub async fn routes(
    o: &Observer<'_>,
    r: &Resolved,
    state: &State,
    status: &InstanceGroupStatus,
) -> Observed<Vec<RouteTable>> {
    let adopted = status.fargate.as_ref().and_then(|f| f.adopted_hash.as_ref());
    let found = Found::of(r, state, status);
    let first_sight = found.untagged.is_some() && adopted.is_none();
    if first_sight || r.subnets.is_empty() || found.current(r, adopted).is_some() {
        return Ok(Vec::new());
    }
    let tables = o.inventory.route_tables(&r.vpc).await.map_err(ObserveError::Aws)?;
    Ok(tables.map(|tables| tables.to_vec()).unwrap_or_default())
}

/// The profiles whose names the group could have given, and those that its status remembers.
async fn profiles(
    o: &Observer<'_>,
    cluster: &str,
    names: &ProfileNames,
    status: &InstanceGroupStatus,
    (list, each): (Duration, Duration),
) -> Observed<Vec<FargateProfile>> {
    let aws = ObserveError::Aws;
    let listed = o.inventory.fargate_profile_names(cluster, list).await.map_err(aws)?;
    let recorded = status.fargate.iter().flat_map(|f| &f.profiles);
    let asked: BTreeSet<_> = listed.iter().chain(recorded).filter(|name| names.covers(name)).collect();
    // One that is recorded and not listed is gone, or so new that the list lacks it.
    let age = |name: &String| if listed.contains(name) { each } else { each.min(list) };
    let found = asked.iter().map(|name| o.inventory.fargate_profile(cluster, name, age(name)));
    Ok(try_join_all(found).await.map_err(aws)?.into_iter().flatten().collect())
}

/// Of former roles those whose entry goes, and those whose entry stays, and on record: other groups that left the role as
/// well may have pods by it still.
fn former<'r>(
    o: &Observer<'_>,
    id: &GroupId,
    roles: impl Iterator<Item = &'r String>,
    recorded: impl Fn(&str, &str) -> BTreeSet<String>,
) -> (Vec<&'r String>, Vec<String>) {
    let (key, mut going, mut kept) = (id.key(), Vec::new(), Vec::new());
    for arn in roles.collect::<BTreeSet<_>>() {
        let others = recorded(arn, &key);
        let needed = o.groups.shares_role(arn, &key) || o.groups.any_leaving(&others);
        match fate(needed, &others, &key) {
            Fate::Goes => going.push(arn),
            Fate::Stays => kept.push(arn.clone()),
            Fate::Handed => {}
        }
    }
    (going, kept)
}

/// A role's entry in aws-auth, when it says what the controller writes.
fn entry(o: &Observer<'_>, role_arn: &str) -> Option<AuthEntry> {
    Some(AuthEntry::for_pods(role_arn)).filter(|entry| aws_auth::state(o.map_roles, entry) == EntryState::Present)
}

async fn former_access(
    o: &Observer<'_>,
    r: &Resolved,
    status: &InstanceGroupStatus,
) -> Observed<(Vec<AccessEntry>, Vec<String>)> {
    let recorded = status.managed.iter().flat_map(|m| &m.access_entries).filter(|arn| **arn != r.role_arn);
    let (going, kept) = former(o, &r.wanted.id, recorded, |arn, key| o.groups.admitted_by(arn, key));
    let key = r.wanted.id.key();
    let left = going.into_iter().map(|principal| join::left(o, &key, &r.wanted.cluster, principal, status));
    Ok((try_join_all(left).await?.into_iter().flatten().collect(), kept))
}

fn queue(o: &Observer<'_>, id: &GroupId, cluster: &str, status: &InstanceGroupStatus) -> Queue {
    let since = status.fargate.as_ref().and_then(|f| f.waiting_since.as_deref());
    o.groups.queue(cluster, since, &id.key(), o.now)
}

/// Our own role with what is on it; `None` when it is not there, or not provably ours.
async fn role(
    o: &Observer<'_>,
    name: &str,
    ownership: &[Tag],
    status: &InstanceGroupStatus,
) -> Observed<Option<FormerRole>> {
    let aws = ObserveError::Aws;
    let iam = &o.inventory.aws().iam;
    let adopted = status.managed.as_ref().and_then(|m| m.adopted.as_ref()).and_then(|a| a.role.as_ref());
    let ours = |r: &Role| owned(&r.tags, ownership) || taken_over(&r.id, &r.tags, adopted, ownership);
    let Some(role) = iam.get_role(name).await.map_err(aws)?.filter(ours) else { return Ok(None) };
    let attached = iam.attached_policies(name).await.map_err(aws)?;
    let inline = iam.inline_policies(name).await.map_err(aws)?;
    Ok(Some(FormerRole { role, attached, inline }))
}

/// What is left of a group that is to go.
pub struct Remains {
    /// Its profiles.
    pub profiles: Left,
    /// The role of the one that another controller made, when it was derived for the group and carries nobody's tags.
    pub untagged_role: Option<String>,
    /// Its own role, once the profiles are gone.
    pub role: Option<FormerRole>,
    /// Its own role's name, when another group uses it.
    pub role_in_use: Option<String>,
    /// Its entries in aws-auth that nothing else uses.
    pub auth: Vec<AuthEntry>,
    /// The same of access entries.
    pub access: Vec<AccessEntry>,
    /// A group that has to be gone before.
    pub after: Option<String>,
    /// Where it stands among the groups of the cluster that wait for EKS.
    pub queue: Queue,
}

/// Looks at what is left of a group, under its derived names and under those for when another group has them.
pub async fn remains(
    o: &Observer<'_>,
    id: &GroupId,
    cluster: &str,
    evidence: &Evidence<'_>,
    ownership: &[Tag],
    status: &InstanceGroupStatus,
) -> Observed<Remains> {
    let aws = ObserveError::Aws;
    let of = |distinct| ProfileNames::new(cluster, &id.namespace, &id.name, distinct);
    let both = [of(false), of(true)];
    let mut found = Vec::new();
    for names in &both {
        found.extend(profiles(o, cluster, names, status, (Duration::ZERO, Duration::ZERO)).await?);
    }
    let mut remains = Remains {
        profiles: Left::of(found, &both[0], ownership, evidence),
        untagged_role: None,
        role: None,
        role_in_use: None,
        auth: Vec::new(),
        access: Vec::new(),
        after: None,
        queue: queue(o, id, cluster, status),
    };
    if let Some(profile) = &remains.profiles.untagged {
        let derived = profile.role_arn.ends_with(&format!("/{}", both[0].role));
        let role = if derived { o.inventory.aws().iam.get_role(&both[0].role).await.map_err(aws)? } else { None };
        let unclaimed = role.filter(|r| !owned(&r.tags, ownership) && !foreign(&r.tags, ownership));
        remains.untagged_role = unclaimed.map(|role| role.name);
        return Ok(remains);
    }
    if !remains.profiles.own.is_empty() || remains.profiles.unproven.is_some() {
        return Ok(remains);
    }
    for names in &both {
        if remains.role.is_none() {
            remains.role = role(o, &names.role, ownership, status).await?;
        }
    }
    let used = |former: &mut FormerRole| o.groups.shares_role(&former.role.arn, &id.key());
    remains.role_in_use = remains.role.take_if(used).map(|former| former.role.name);
    // The entry of a role that goes, goes along, whoever wrote it.
    let own = |arn: &&String| both.iter().any(|names| arn.ends_with(&format!(":role/{}", names.role)));
    let own = status.nodes_instance_role_arn.as_ref().filter(own);
    let (groups, key, managed) = (o.groups, id.key(), status.managed.iter());
    let roles: BTreeSet<_> = managed.clone().flat_map(|m| &m.auth_entries).chain(own).collect();
    let there = roles.into_iter().filter(|arn| entry(o, arn).is_some());
    let (auth, before) = bequeathed(there, |arn| groups.legacy(arn, &groups.authorised_by(arn, &key), &key));
    remains.auth = auth.into_iter().filter_map(|arn| entry(o, arn)).collect();
    let recorded = managed.flat_map(|m| &m.access_entries);
    let (access, after) = bequeathed(recorded, |arn| groups.legacy(arn, &groups.admitted_by(arn, &key), &key));
    for arn in access {
        remains.access.extend(join::left(o, &key, cluster, arn, status).await?);
    }
    remains.after = before.or(after);
    Ok(remains)
}
