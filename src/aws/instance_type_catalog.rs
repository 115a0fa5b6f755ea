//! A catalog of instance types: which types are similar, and in which zones they are offered.
//!
//! A family here is an instance series with its generation: `m5` contains `m5.large`, `m5a.large` and `m5dn.large`.

use std::collections::{HashMap, HashSet};

use super::types::InstanceType;

/// The instance types of one or more families. They are indexed once, so that a lookup visits only similar types.
#[derive(Debug, Default)]
pub struct InstanceTypeCatalog {
    /// Names of similar types, sorted.
    similar: HashMap<SimilarityKey, Vec<String>>,
    /// Similarity keys by type name.
    keys: HashMap<String, SimilarityKey>,
    /// Types by name.
    types: HashMap<String, InstanceType>,
    /// Availability zones by type name.
    zones: HashMap<String, HashSet<String>>,
}

/// Types with equal keys are similar.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SimilarityKey {
    family: String,
    architecture: String,
    vcpus: i32,
    memory_mib: i64,
    /// A bare-metal instance takes much longer to start than a virtual one.
    is_bare_metal: bool,
}

/// The family of an instance type: `m5` for `m5dn.large`. `None` if `name` cannot be the name of a type.
pub(crate) fn family_key(name: &str) -> Option<&str> {
    let (prefix, size) = name.split_once('.')?;
    let is_valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let digits = prefix.find(|c: char| c.is_ascii_digit()).filter(|at| *at > 0)?;
    if size.is_empty() || !prefix.chars().chain(size.chars()).all(is_valid) {
        return None;
    }
    let rest = prefix[digits..].find(|c: char| !c.is_ascii_digit());
    Some(&prefix[..rest.map_or(prefix.len(), |at| digits + at)])
}

/// `None` for a type without a valid name or an architecture that nodes can have, or of unknown size.
fn similarity_key(instance_type: &InstanceType) -> Option<SimilarityKey> {
    let (_, size) = instance_type.name.split_once('.')?;
    Some(SimilarityKey {
        family: family_key(&instance_type.name)?.into(),
        architecture: instance_type.architecture()?.into(),
        vcpus: instance_type.vcpus?,
        memory_mib: instance_type.memory_mib?,
        is_bare_metal: size.starts_with("metal"),
    })
}

impl InstanceTypeCatalog {
    /// Indexes types and their offerings, which are pairs of type name and availability zone.
    pub fn new(types: &[InstanceType], offerings: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut catalog = InstanceTypeCatalog::default();
        for instance_type in types {
            let Some(key) = similarity_key(instance_type) else { continue };
            let name = &instance_type.name;
            catalog.similar.entry(key.clone()).or_default().push(name.clone());
            catalog.keys.insert(name.clone(), key);
            catalog.types.insert(name.clone(), instance_type.clone());
        }
        catalog.similar.values_mut().for_each(|names| names.sort());
        for (name, zone) in offerings {
            catalog.zones.entry(name).or_default().insert(zone);
        }
        catalog
    }

    /// Types similar to a given type, without the type itself, sorted by name. Empty for an unknown type.
    pub(crate) fn similar_to(&self, name: &str) -> Vec<&str> {
        let similar = self.keys.get(name).and_then(|key| self.similar.get(key));
        similar.into_iter().flatten().map(String::as_str).filter(|other| *other != name).collect()
    }

    /// The properties of a type; `None` for an unknown type.
    pub(crate) fn get(&self, name: &str) -> Option<&InstanceType> {
        self.types.get(name)
    }

    /// Whether a type is offered in all of the given availability zones.
    pub(crate) fn offered_in_zones(&self, name: &str, zones: &[&str]) -> bool {
        let offered = self.zones.get(name);
        zones.iter().all(|zone| offered.is_some_and(|offered| offered.contains(*zone)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance_type(name: &str, architecture: &str, vcpus: i32, memory_mib: i64) -> InstanceType {
        InstanceType {
            name: name.into(),
            architectures: vec![architecture.into()],
            vcpus: Some(vcpus),
            memory_mib: Some(memory_mib),
            ..InstanceType::default()
        }
    }

    fn catalog() -> InstanceTypeCatalog {
        let x86 = |name: &str, vcpus, gib: i64| instance_type(name, "x86_64", vcpus, gib * 1024);
        let types = [
            x86("m5.large", 2, 8),
            x86("m5a.large", 2, 8),
            x86("m5dn.large", 2, 8),
            x86("m5.xlarge", 4, 16),
            x86("m6i.large", 2, 8),
            instance_type("m5g.large", "arm64", 2, 8 * 1024),
            x86("mac5.large", 2, 8),
            x86("m5.metal", 96, 384),
            x86("m5.24xlarge", 96, 384),
            x86("gr6.4xlarge", 16, 128),
            x86("g6e.4xlarge", 16, 128),
        ];
        let offerings = types.iter().flat_map(|t| ["a", "b"].map(|zone| (t.name.clone(), zone.to_owned())));
        InstanceTypeCatalog::new(&types, offerings.filter(|o| *o != ("m5dn.large".to_owned(), "b".to_owned())))
    }

    #[test]
    fn similar_types_share_family_generation_architecture_and_size() {
        let catalog = catalog();
        for (name, similar) in [
            ("m5.large", vec!["m5a.large", "m5dn.large"]),
            ("m5a.large", vec!["m5.large", "m5dn.large"]),
            ("m5.xlarge", vec![]),
            ("m6i.large", vec![]),
            ("m5g.large", vec![]),
            ("m5.24xlarge", vec![]),
            ("gr6.4xlarge", vec![]),
            ("no.such", vec![]),
        ] {
            assert_eq!(catalog.similar_to(name), similar, "{name}");
        }
    }

    #[test]
    fn family_key_is_series_and_generation() {
        for (name, family) in [
            ("m5dn.large", Some("m5")),
            ("c7i-flex.large", Some("c7")),
            ("im4gn.large", Some("im4")),
            ("u-6tb1.metal", Some("u-6")),
            ("m10a.large", Some("m10")),
            ("m5", None),
            ("m.large", None),
            ("5.large", None),
            ("m*5.large", None),
            ("m5.*", None),
            ("m5.", None),
            ("", None),
        ] {
            assert_eq!(family_key(name), family, "{name}");
        }
    }

    #[test]
    fn indexing_visits_each_offering_once() {
        let name = |n: usize| format!("m{}.{}xlarge", n / 15, n % 15);
        let types: Vec<_> = (0..1_395).map(|n| instance_type(&name(n), "x86_64", (n % 15) as i32, 8)).collect();
        let mut visited = 0;
        let offerings = (0..3 * 1_395).map(|n| (name(n % 1_395), (n / 1_395).to_string())).inspect(|_| visited += 1);
        let catalog = InstanceTypeCatalog::new(&types, offerings);
        assert_eq!(visited, 3 * 1_395);
        assert_eq!(catalog.similar.values().map(Vec::len).sum::<usize>(), 1_395, "each type is in one list");
    }

    #[test]
    fn type_must_be_offered_in_all_zones() {
        let catalog = catalog();
        assert!(catalog.offered_in_zones("m5a.large", &["a", "b"]) && catalog.offered_in_zones("m5dn.large", &["a"]));
        assert!(!catalog.offered_in_zones("m5dn.large", &["a", "b"]) && !catalog.offered_in_zones("m5a.large", &["c"]));
        assert!(!catalog.offered_in_zones("no.such", &["a"]));
    }
}
