//! Fields of the merged spec that cannot be used, and what depends on each of them.
//!
//! An existing group continues with everything else; what depends on such a field stays as it is in AWS. A new group is
//! rejected.
//!
//! Two fields stop an existing group as well. Without `provisioner`, it is not known which resources belong to it.
//! Without `clusterName`, neither its names nor the tags that prove its ownership can be derived. The account and
//! region of its nodes are not known either.

use std::sync::Arc;

use crate::api::InstanceGroupStatus;
use crate::api::names::condition;
use crate::api::spec_error::{MissingValue, SpecError, first_reason, join_messages};
use crate::boundaries::MergedSpec;
use crate::plan::{ConditionUpdate, FieldRejection, Outcome, PlanBuilder, StalledReason};

/// What depends on a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// `minSize` and `maxSize`.
    Sizes,
    /// More nodes than the group has, which the quota of the namespace rejects. The group may still shrink.
    Growth,
    /// The subnets of a scaling group.
    Subnets,
    /// The content of a new launch template version, and the mixed instances policy.
    Launch,
    /// What EKS cannot change in place: a managed node group or a Fargate profile is replaced.
    Immutable,
    /// Labels and taints of a managed node group.
    Labels,
    /// The tags of the AWS resources.
    Tags,
    /// Lifecycle hooks.
    Hooks,
    /// Suspended processes.
    Processes,
    /// Metrics of the scaling group.
    Metrics,
    /// The warm pool.
    WarmPool,
    /// The role of the nodes.
    Role,
    /// Managed policies of the controller's own role.
    Policies,
    /// The entries that authorize the role in the cluster.
    Join,
    /// How nodes are replaced.
    Rotation,
}

impl Part {
    /// What the group keeps while the part cannot be changed.
    fn kept(self) -> &'static str {
        match self {
            Part::Sizes | Part::Growth => "its sizes",
            Part::Subnets => "its subnets",
            Part::Launch => "its launch template version and its nodes",
            Part::Immutable => "what EKS cannot change in place",
            Part::Labels => "its labels and taints",
            Part::Tags => "its tags",
            Part::Hooks => "its lifecycle hooks",
            Part::Processes => "its suspended processes",
            Part::Metrics => "its metrics",
            Part::WarmPool => "its warm pool",
            Part::Role => "its role",
            Part::Policies => "the policies of its role",
            Part::Join => "the entries of its role",
            Part::Rotation => "its nodes",
        }
    }
}

/// Where the values of a merged spec come from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ValueSources {
    merged: Arc<MergedSpec>,
    /// There is no ConfigMap of boundaries, as after a first installation.
    lacks_config_map: bool,
}

impl ValueSources {
    /// The sources of a merged spec.
    pub(crate) fn new(merged: Arc<MergedSpec>) -> Self {
        Self { merged, lacks_config_map: false }
    }

    /// The same; `lacks_config_map`: there is no ConfigMap that could give defaults.
    pub(crate) fn lacking_config_map(self, lacks_config_map: bool) -> Self {
        Self { lacks_config_map, ..self }
    }

    /// Adds to errors whose value it is, and a default as the remedy where the boundaries dropped the tenant's value.
    pub(crate) fn explain(&self, errors: &mut [SpecError]) {
        for error in errors.iter_mut().filter(|error| error.missing.is_some()) {
            let is_overridden =
                || self.merged.overridden.iter().any(|o| o.path == error.path && o.unused_because.is_none());
            if self.merged.is_restricted(&error.path) || is_overridden() {
                *error = error.clone().missing_for(MissingValue::Admin);
            } else if self.lacks_config_map {
                *error = error.clone().missing_for(MissingValue::Tenant);
            }
        }
        for error in errors.iter_mut().filter(|error| !error.path.is_empty()) {
            error.author_path = self.merged.author_path(&error.path).map(Into::into);
            // A value that is missing in an entry of a list is missing in what the author of the entry wrote.
            let path = match (error.value.is_empty(), error.path.rfind(']')) {
                (false, _) => error.path.as_str(),
                (true, Some(end)) => &error.path[..=end],
                (true, None) => continue,
            };
            error.admin_source = self.merged.admin_source(path).map(|source| source.to_string().into());
            // A tenant does not know a limit that is a default.
            if let Some(source) = error.compared_with.take().and_then(|field| self.merged.admin_source(field.path()))
                && error.admin_source.is_none()
            {
                error.rule += &format!(", which is your cluster admin's: {source}");
            }
        }
    }
}

/// Errors of fields, with the parts that depend on each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RejectedFields(Vec<(&'static [Part], SpecError)>, ValueSources);

impl RejectedFields {
    /// Sorts errors by the parts that depend on their fields. `parts` is `None` for a field that everything depends on.
    ///
    /// # Errors
    /// All errors, if everything depends on one of the fields.
    pub fn classify(
        mut errors: Vec<SpecError>,
        sources: &ValueSources,
        parts: impl Fn(&str) -> Option<&'static [Part]>,
    ) -> Result<Self, Vec<SpecError>> {
        sources.explain(&mut errors);
        let classified: Option<Vec<_>> =
            errors.iter().map(|error| Some((parts(&error.path)?, error.clone()))).collect();
        classified.map(|fields| RejectedFields(fields, sources.clone())).ok_or(errors)
    }

    /// Adds an error of a field that these parts depend on.
    pub fn push(&mut self, parts: &'static [Part], error: SpecError) {
        self.extend(parts, [error]);
    }

    /// Adds errors of fields that these parts depend on.
    pub fn extend(&mut self, parts: &'static [Part], errors: impl IntoIterator<Item = SpecError>) {
        let mut errors: Vec<_> = errors.into_iter().collect();
        self.1.explain(&mut errors);
        self.0.extend(errors.into_iter().map(|error| (parts, error)));
    }

    /// Like [`RejectedFields::extend`], without errors of fields that an error names already: those follow from it.
    pub(crate) fn extend_unnamed(&mut self, parts: &'static [Part], errors: impl IntoIterator<Item = SpecError>) {
        let new: Vec<_> = errors.into_iter().filter(|error| !self.has_error_at(&error.path)).collect();
        self.extend(parts, new);
    }

    /// Whether an error is about the field at this path.
    pub(crate) fn has_error_at(&self, path: &str) -> bool {
        self.0.iter().any(|(_, error)| error.path == path)
    }

    /// All errors, after one that everything depends on.
    pub(crate) fn errors_after(&self, first: SpecError) -> Vec<SpecError> {
        [vec![first], self.errors()].concat()
    }

    /// Whether every field can be used.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a part stays as it is in AWS.
    pub fn contains(&self, part: Part) -> bool {
        self.0.iter().any(|(parts, _)| parts.contains(&part))
    }

    /// All errors, in the order in which they were found.
    pub(crate) fn errors(&self) -> Vec<SpecError> {
        self.0.iter().map(|(_, error)| error.clone()).collect()
    }

    /// Reason and message of the errors of fields that one of these parts depends on; `None` without any.
    pub(crate) fn problem_of(&self, parts: &[Part]) -> Option<(StalledReason, String)> {
        let found = self.0.iter().filter(|(dependent, _)| dependent.iter().any(|part| parts.contains(part)));
        let FieldRejection { reason, message } = Self(found.cloned().collect(), ValueSources::default()).problem()?;
        Some((reason, message))
    }

    /// Reason and message of all errors, without what the group keeps because of them; `None` when every field can be used.
    pub(crate) fn rejection(&self) -> Option<(StalledReason, String)> {
        let errors = self.errors();
        (!errors.is_empty()).then(|| (first_reason(&errors), join_messages(&errors)))
    }

    /// All errors, with what the group keeps because of them; `None` without any.
    fn problem(&self) -> Option<FieldRejection> {
        let (reason, errors) = self.rejection()?;
        let mut kept: Vec<_> = self.0.iter().flat_map(|(parts, _)| *parts).copied().collect();
        kept.sort_unstable();
        let mut kept: Vec<_> = kept.into_iter().map(Part::kept).collect();
        kept.dedup();
        let message = match kept.split_last() {
            None => errors,
            Some((last, rest)) => {
                let rest = if rest.is_empty() { String::new() } else { format!("{} and ", rest.join(", ")) };
                format!("{errors}. Until then, the group keeps {rest}{last}; other changes are applied")
            }
        };
        Some(FieldRejection { reason, message })
    }

    /// The outcome of a group that is otherwise as desired; `None` when every field can be used.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        self.problem().map(|found| found.outcome())
    }

    /// Reports the fields, or that every field can be used again.
    pub(crate) fn report(&self, status: &InstanceGroupStatus, builder: &mut PlanBuilder) {
        builder.rejected_fields = self.problem();
        builder.condition_updates.extend(self.condition(status));
    }

    /// The condition that names the fields; `None` when there is nothing to report.
    fn condition(&self, status: &InstanceGroupStatus) -> Option<ConditionUpdate> {
        let was_set = || status.conditions.iter().any(|c| c.r#type == condition::FIELDS_REJECTED && c.is_true());
        let ended = || ConditionUpdate {
            condition_type: condition::FIELDS_REJECTED,
            status: false,
            reason: "NoneRejected".into(),
            message: String::new(),
        };
        match self.problem() {
            Some(found) => Some(found.condition()),
            None => was_set().then(ended),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::spec_error::ComparedField;
    use crate::boundaries::{Boundaries, merge};

    #[test]
    fn message_names_fields_and_what_stays() {
        let error = |path: &str| SpecError::invalid(path, "x", "is wrong", "correct it");
        let mut broken = RejectedFields::default();
        assert!(broken.outcome().is_none() && broken.condition(&InstanceGroupStatus::default()).is_none());
        broken.push(&[Part::Role, Part::Launch], error("a").with_reason(StalledReason::NotFound));
        broken.push(&[Part::Subnets], error("b"));
        let Some(Outcome::Blocked { reason: StalledReason::NotFound, message, .. }) = broken.outcome() else {
            panic!("the group is not blocked");
        };
        assert_eq!(
            message,
            "a `x` is wrong; correct it. b `x` is wrong; correct it. Until then, the group keeps its subnets, its launch template version and its nodes and its role; other changes are applied"
        );
        assert!(broken.contains(Part::Launch) && !broken.contains(Part::Tags));
        let (_, message) = broken.problem_of(&[Part::Subnets]).expect("one of them");
        assert!(message.starts_with("b `x`"), "{message}");
    }

    #[test]
    fn field_that_everything_depends_on_rejects_the_group() {
        let errors = vec![SpecError::missing("a"), SpecError::missing("b")];
        let parts = |path: &str| (path == "a").then_some(&[Part::Tags][..]);
        assert_eq!(RejectedFields::classify(errors.clone(), &ValueSources::default(), parts), Err(errors.clone()));
        assert!(
            RejectedFields::classify(errors[..1].to_vec(), &ValueSources::default(), parts)
                .is_ok_and(|b| b.contains(Part::Tags))
        );
    }

    /// A tenant who reads that the field must be set could not set it. After a first installation, a tenant would ask
    /// the admin for a default that no ConfigMap can contain yet.
    #[test]
    fn missing_field_says_that_no_config_map_gives_defaults() {
        let remedy = |lacks_config_map| {
            let mut errors = [SpecError::missing("spec.eks.configuration.image")];
            ValueSources::default().lacking_config_map(lacks_config_map).explain(&mut errors);
            errors[0].remedy.to_string()
        };
        assert!(remedy(true).contains("finds no ConfigMap instance-manager") && !remedy(false).contains("finds no"));
    }

    #[test]
    fn missing_restricted_field_refers_to_the_admin() {
        let config = [("boundaries".to_owned(), "restricted: [spec.eks.configuration]".to_owned())];
        let (boundaries, _) = Boundaries::parse(&config.into()).expect("boundaries");
        let group = serde_json::json!({"metadata": {}, "spec": {"eks": {"minSize": 5}}});
        let sources = ValueSources::new(merge(&boundaries, &group, false).expect("a merged spec").into());
        let mut errors = ["spec.eks.configuration.subnets", "spec.eks.maxSize"].map(SpecError::missing);
        sources.explain(&mut errors);
        assert!(errors[0].to_string().ends_with("tenants may not set it; ask your cluster admin for a default"));
        assert!(errors[1].to_string().contains("set it in the InstanceGroup"));
    }

    /// A tenant cannot correct what the admin wrote, and does not find the field in the InstanceGroup.
    #[test]
    fn error_in_a_default_names_its_owner() {
        let config = [
            ("boundaries".to_owned(), "shared: {merge: [spec.eks]}".to_owned()),
            (
                "defaults".to_owned(),
                "spec: {eks: {maxSize: 3, configuration: {image: wrong, subnets: [a, b]}}}".to_owned(),
            ),
        ];
        let (boundaries, _) = Boundaries::parse(&config.into()).expect("boundaries");
        let group =
            serde_json::json!({"metadata": {}, "spec": {"eks": {"minSize": 5, "configuration": {"subnets": ["c"]}}}});
        let sources = ValueSources::new(merge(&boundaries, &group, false).expect("a merged spec").into());
        let source_of = |path: &str| {
            let mut errors = [SpecError::invalid(path, "x", "is wrong", "correct it")];
            sources.explain(&mut errors);
            errors[0].to_string().split_once("admin's: ").map(|(_, source)| source.to_owned())
        };
        let default = Some("default (shared.merge) in the ConfigMap instance-manager".to_owned());
        assert_eq!(source_of("spec.eks.configuration.image"), default);
        assert_eq!(source_of("spec.eks.maxSize"), default);
        assert_eq!(source_of("spec.eks.minSize"), None, "it is the tenant's");
        let rule = "is larger than spec.eks.maxSize (3)";
        let mut errors =
            [SpecError::invalid("spec.eks.minSize", 5, rule, "lower it").compared_with(ComparedField::MaxSize)];
        (0..2).for_each(|_| sources.explain(&mut errors));
        assert_eq!(
            errors[0].to_string(),
            "spec.eks.minSize `5` is larger than spec.eks.maxSize (3), which is your cluster admin's: default (shared.merge); lower it"
        );
        assert_eq!(source_of("spec.eks.configuration.keyPairName"), None, "neither the tenant nor the admin set it");
        let mut broken = RejectedFields::classify(vec![], &sources, |_| None).expect("no errors");
        broken.push(
            &[Part::Launch],
            SpecError::invalid("spec.eks.configuration.image", "x", "does not exist", "correct it"),
        );
        let (_, message) = broken.problem_of(&[Part::Launch]).expect("an error");
        assert!(message.contains("admin's: default"), "errors that are found later say it, too: {message}");
    }

    /// A tenant who wrote one taint does not find a third one in the InstanceGroup.
    #[test]
    fn error_in_a_merged_list_uses_the_authors_index() {
        let sources = |boundary: &str| {
            let config = [
                ("boundaries".to_owned(), format!("shared: {{{boundary}: [spec.eks.configuration.taints]}}")),
                (
                    "defaults".to_owned(),
                    "spec: {eks: {configuration: {taints: [{key: a}, {effect: x}], subnets: [s]}}}".to_owned(),
                ),
            ];
            let (boundaries, _) = Boundaries::parse(&config.into()).expect("boundaries");
            let taints = serde_json::json!([{"effect": "b"}, {"key": "team", "effect": "c"}]);
            let group = serde_json::json!({"metadata": {}, "spec": {"eks": {"configuration": {"taints": taints}}}});
            ValueSources::new(merge(&boundaries, &group, false).expect("a merged spec").into())
        };
        let reported = |sources: &ValueSources, field: &str, value: &str| {
            let path = format!("spec.eks.configuration.taints{field}");
            let mut errors = [SpecError::invalid(&path, value, "is wrong", "correct it")];
            (0..2).for_each(|_| sources.explain(&mut errors));
            assert_eq!(errors[0].path, path, "the code continues with the path of the merged list");
            errors[0].to_string().replacen("spec.eks.configuration.", "", 1)
        };
        let merged = sources("merge");
        let admins = "; it is your cluster admin's: default (shared.merge) in the ConfigMap instance-manager";
        assert_eq!(reported(&merged, "[3].effect", "c"), "taints[key=team].effect `c` is wrong; correct it");
        assert_eq!(reported(&merged, "[2].key", ""), "taints[0].key is wrong; correct it", "the tenant's own index");
        assert_eq!(reported(&merged, "[0].effect", ""), format!("taints[key=a].effect is wrong; correct it{admins}"));
        assert_eq!(reported(&merged, "[1].key", ""), format!("taints[1].key is wrong; correct it{admins}"));
        assert_eq!(reported(&sources("replace"), "[1].key", "team"), "taints[1].key `team` is wrong; correct it");
    }

    #[test]
    fn condition_ends_with_the_errors() {
        let status = serde_json::json!({"conditions": [{"type": "FieldsRejected", "status": "True"}]});
        let status = serde_json::from_value(status).expect("a status");
        let ended = RejectedFields::default().condition(&status).expect("an update");
        assert_eq!((ended.status, ended.reason.as_str()), (false, "NoneRejected"));
    }
}
