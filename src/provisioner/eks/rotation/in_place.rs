//! Labels and taints that change on running nodes instead of replacing them (`inPlace`).
//!
//! A launch template version never changes, and its hash says what went into it. The desired inputs with the labels and
//! taints that are read back from the version must have that hash, or give the version's content: then they are the
//! node's, and nothing else differs. A node whose version does not prove that is replaced, as without `inPlace`.
//!
//! What the node got later is in the record on it. A node with a record counts as what the record says, also when
//! `inPlace` is removed: it is then outdated as soon as the spec differs from the record.

use std::collections::{BTreeMap, BTreeSet};

use super::template_origin::{TemplateOrigin, launch_version};
use crate::api::names::label;
use crate::api::{InPlaceField, InstanceGroupStatus};
use crate::aws::{Instance, TemplateData};
use crate::plan::in_place::is_reserved_key;
use crate::plan::{Drift, InPlaceChange, NodeAttributes, NodeTaint};
use crate::provisioner::eks::input::PlanInput;
use crate::provisioner::eks::launch_template::drift;
use crate::provisioner::eks::launch_template::fingerprint::Fingerprint;
use crate::provisioner::eks::launch_template::node_labels::{attribute_drift, attributes};
use crate::provisioner::eks::names::LIFECYCLE_LABEL;
use crate::provisioner::eks::observed::{ObservedState, ObservedVersion};
use crate::provisioner::eks::resolve::ResolvedGroup;
use crate::provisioner::eks::user_data::{self, BootstrapInput};
use crate::provisioner::rejected_fields::Part;
use crate::rotation::{InPlaceUpdate, NodeView};
use crate::util::redact::Redacted;

/// How the labels and taints of an instance differ from the spec, when nothing else differs.
#[derive(Debug, Default)]
pub(super) struct Difference {
    /// Why it must be replaced; empty when it need not.
    pub outdated: Vec<Drift>,
    /// What changes in place; `None` when nothing differs, or when it must be replaced.
    pub in_place: Option<InPlaceUpdate>,
}

/// Compares the instances of a group with its spec. What a version gives to its nodes is found out once.
pub(super) struct InPlaceComparison<'a> {
    resolved: &'a ResolvedGroup,
    state: &'a ObservedState,
    status: &'a InstanceGroupStatus,
    /// What may change in place.
    fields: BTreeSet<InPlaceField>,
    desired: NodeAttributes,
    /// By version; `None` for one that differs in more, or that cannot be read back.
    launched: BTreeMap<i64, Option<NodeAttributes>>,
}

impl<'a> InPlaceComparison<'a> {
    pub(super) fn new(resolved: &'a ResolvedGroup, state: &'a ObservedState, status: &'a InstanceGroupStatus) -> Self {
        let desired = attributes(&resolved.desired.labels, &resolved.desired.taints);
        Self { resolved, state, status, fields: fields(resolved), desired, launched: BTreeMap::new() }
    }

    /// How an instance differs from the spec in labels and taints. `None` when more differs or is not known, or when no
    /// change in place was made or is needed. Then only the launch template version decides.
    pub(super) fn compare(&mut self, instance: &Instance, node: Option<&NodeView>) -> Option<Difference> {
        let record = node.and_then(|node| node.in_place.as_ref()).filter(|record| record.instance == instance.id);
        if self.fields.is_empty() && record.is_none() || self.resolved.broken.contains(Part::Launch) {
            return None;
        }
        let version = launch_version(self.state, instance)?;
        let (resolved, state, status) = (self.resolved, self.state, self.status);
        let find = || launched_with(resolved, state, status, version);
        let launched = self.launched.entry(version).or_insert_with(find).as_ref()?;
        let given = match record {
            Some(record) => record.over(launched, known_attributes(launched, &self.desired, status)),
            None => launched.clone(),
        };
        let change = InPlaceChange::between(&instance.id, &given, &self.desired, record);
        let reasons = attribute_drift(&given, &self.desired);
        Some(match () {
            () if reasons.is_empty() => Difference::default(),
            () if may_change(&self.fields, &change) => {
                Difference { outdated: Vec::new(), in_place: Some(InPlaceUpdate { change, reasons }) }
            }
            () => Difference { outdated: reasons, in_place: None },
        })
    }
}

/// Returns which labels and taints come from the spec: from the node's own version, the present spec or an earlier one, as
/// the status records it.
fn known_attributes<'a>(
    launched: &'a NodeAttributes,
    desired: &'a NodeAttributes,
    status: &'a InstanceGroupStatus,
) -> (impl Fn(&str) -> bool + 'a, impl Fn(&NodeTaint) -> bool + 'a) {
    let managed = status.managed.as_ref();
    let is_known_label = move |key: &str| {
        let is_recorded = managed.is_some_and(|managed| managed.labels.iter().any(|known| known == key));
        is_recorded || desired.labels.contains_key(key) || launched.labels.contains_key(key)
    };
    let is_known_taint = move |taint: &NodeTaint| {
        let is_recorded = managed.is_some_and(|managed| managed.taints.contains(&taint.identity()));
        is_recorded || desired.taints.iter().chain(&launched.taints).any(|known| known.is_same(taint))
    };
    (is_known_label, is_known_taint)
}

/// The keys of labels, and the taints as `key:effect`, that the status records as the spec's. They are those of the
/// present spec while they may change in place, and earlier ones that a node still has by its record.
pub(crate) fn recorded_attributes(input: &PlanInput) -> (Vec<String>, Vec<String>) {
    let old = input.status.managed.clone().unwrap_or_default();
    // What the present spec asks for is not known.
    if input.resolved.broken.contains(Part::Launch) {
        return (old.labels, old.taints);
    }
    let fields = fields(input.resolved);
    let desired = attributes(&input.resolved.desired.labels, &input.resolved.desired.taints);
    let records = || input.observed.nodes.values().filter_map(|node| node.in_place.as_ref());
    // Without the group in AWS's answer, which nodes it has is not known.
    let is_unknown = input.observed.scaling_group.is_none();
    let mut labels: BTreeSet<_> = old.labels.into_iter().collect();
    labels.retain(|key| {
        is_unknown || records().any(|record| record.labels.as_ref().is_some_and(|all| all.contains_key(key)))
    });
    let mut taints: BTreeSet<_> = old.taints.into_iter().collect();
    taints.retain(|identity| {
        let has = |taints: &BTreeSet<NodeTaint>| taints.iter().any(|taint| taint.identity() == *identity);
        is_unknown || records().any(|record| record.taints.as_ref().is_some_and(has))
    });
    if fields.contains(&InPlaceField::Labels) {
        labels.extend(desired.labels.into_keys());
    }
    if fields.contains(&InPlaceField::Taints) {
        taints.extend(desired.taints.iter().map(NodeTaint::identity));
    }
    (labels.into_iter().collect(), taints.into_iter().collect())
}

/// What may change in place. With the strategy `crd`, its resource replaces the nodes.
pub(crate) fn fields(resolved: &ResolvedGroup) -> BTreeSet<InPlaceField> {
    match resolved.desired.crd_strategy.is_some() || resolved.broken.contains(Part::Rotation) {
        true => BTreeSet::new(),
        false => resolved.desired.rolling_update.in_place.clone(),
    }
}

/// The labels and taints that the kubelet of a node with this version sets, if nothing else in the version differs from
/// the spec.
fn launched_with(
    resolved: &ResolvedGroup,
    state: &ObservedState,
    status: &InstanceGroupStatus,
    version: i64,
) -> Option<NodeAttributes> {
    if TemplateOrigin::of_version(state, status, version).has_content(&resolved.fingerprint.hash) {
        return Some(attributes(&resolved.desired.labels, &resolved.desired.taints));
    }
    let found = state.versions.get(&version)?;
    let (labels, taints) = found.node_settings()?.known()?;
    let mut bootstrap = resolved.bootstrap.clone();
    bootstrap.labels.clone_from(labels);
    bootstrap.taints = taints.to_vec();
    let family = resolved.desired.os_family.as_str();
    let expected = Fingerprint::compute(family, &resolved.template_data, &bootstrap);
    let has_inputs = found.fingerprint.as_ref().is_some_and(|print| print.hash == expected.hash);
    (has_inputs || has_content(resolved, found, bootstrap)).then(|| attributes(labels, taints))
}

/// Whether a version has the desired content with these inputs of its user data: other inputs may give the same content.
fn has_content(resolved: &ResolvedGroup, found: &ObservedVersion, mut bootstrap: BootstrapInput) -> bool {
    let image = resolved.bootstrap.labels.get(label::IMAGE).map(|image| (label::IMAGE.to_owned(), image.clone()));
    bootstrap.labels.extend(image);
    let Ok(rendered) = user_data::render(resolved.desired.os_family, &bootstrap) else { return false };
    let content = TemplateData { user_data: Redacted::new(rendered.base64()), ..resolved.template_data.clone() };
    found.data.as_ref().is_some_and(|data| drift::is_same_content(data, &content))
}

/// Whether a running node may get this change. A node cannot become a Spot Instance by a label, and a new NoExecute taint
/// would evict its pods past every budget.
fn may_change(fields: &BTreeSet<InPlaceField>, change: &InPlaceChange) -> bool {
    let has_fixed_key = change.keys().any(|key| key == LIFECYCLE_LABEL || is_reserved_key(key));
    (!change.changes_labels() || fields.contains(&InPlaceField::Labels))
        && (!change.changes_taints() || fields.contains(&InPlaceField::Taints))
        && !has_fixed_key
        && !change.evicts_pods()
}
