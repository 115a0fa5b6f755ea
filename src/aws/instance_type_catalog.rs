//! A catalog of instance types: which types are similar, and in which zones they are offered.

use std::collections::{HashMap, HashSet};

use super::types::InstanceType;

/// The instance types of a line or of more, indexed once: what is asked of them afterwards costs as much as the answer
/// is long.
#[derive(Debug, Default)]
pub struct InstanceTypeCatalog {
    /// Types by what makes them alike, in the order of their names.
    similar: HashMap<SimilarityKey, Vec<String>>,
    keys: HashMap<String, SimilarityKey>,
    /// Types by name.
    types: HashMap<String, InstanceType>,
    /// Zones by type.
    zones: HashMap<String, HashSet<String>>,
}

/// What makes types alike: family, generation, architecture and size.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SimilarityKey {
    /// Family and generation.
    family: String,
    architecture: String,
    vcpus: i32,
    memory: i64,
    metal: bool,
}

/// The family and generation of a type by its name: `m5` of `m5dn.large`; types of another line are never like it.
/// `None` for what can be no type's name.
pub fn family_key(name: &str) -> Option<&str> {
    let (family, size) = name.split_once('.')?;
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let digits = family.find(|c: char| c.is_ascii_digit()).filter(|at| *at > 0)?;
    if size.is_empty() || !family.chars().chain(size.chars()).all(plain) {
        return None;
    }
    let rest = family[digits..].find(|c: char| !c.is_ascii_digit());
    Some(&family[..rest.map_or(family.len(), |at| digits + at)])
}

/// What follows the line in a name tells variants of the same size.
fn similarity_key(of: &InstanceType) -> Option<SimilarityKey> {
    let (_, size) = of.name.split_once('.')?;
    Some(SimilarityKey {
        family: family_key(&of.name)?.into(),
        architecture: of.architecture()?.into(),
        vcpus: of.vcpus,
        memory: of.memory_mib,
        // It takes many times as long to start.
        metal: size.starts_with("metal"),
    })
}

impl InstanceTypeCatalog {
    /// Indexes types and offers (type, zone), each looked at once.
    pub fn new(types: &[InstanceType], offers: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut catalogue = InstanceTypeCatalog::default();
        for one in types {
            let Some(kind) = similarity_key(one) else { continue };
            catalogue.similar.entry(kind.clone()).or_default().push(one.name.clone());
            catalogue.keys.insert(one.name.clone(), kind);
            catalogue.types.insert(one.name.clone(), one.clone());
        }
        catalogue.similar.values_mut().for_each(|names| names.sort());
        for (name, zone) in offers {
            catalogue.zones.entry(name).or_default().insert(zone);
        }
        catalogue
    }

    /// Types similar to a given type, without the type itself, sorted by name. Empty for an unknown type.
    pub fn similar_to(&self, name: &str) -> Vec<&str> {
        let alike = self.keys.get(name).and_then(|kind| self.similar.get(kind));
        alike.into_iter().flatten().map(String::as_str).filter(|other| *other != name).collect()
    }

    /// The properties of a type.
    pub fn get(&self, name: &str) -> Option<&InstanceType> {
        self.types.get(name)
    }

    /// Whether a type is offered in each of some zones.
    pub fn offered_in_zones(&self, name: &str, zones: &[&str]) -> bool {
        let offered = self.zones.get(name);
        zones.iter().all(|zone| offered.is_some_and(|o| o.contains(*zone)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance_type(name: &str, architecture: &str, vcpus: i32, memory_mib: i64) -> InstanceType {
        InstanceType {
            name: name.into(),
            architectures: vec![architecture.into()],
            vcpus,
            memory_mib,
            ..InstanceType::default()
        }
    }

    fn catalogue() -> InstanceTypeCatalog {
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
        let everywhere = types.iter().flat_map(|t| ["a", "b"].map(|z| (t.name.clone(), z.to_owned())));
        InstanceTypeCatalog::new(&types, everywhere.filter(|o| *o != ("m5dn.large".to_owned(), "b".to_owned())))
    }

    #[test]
    fn similar_types_share_family_generation_architecture_and_size() {
        let catalogue = catalogue();
        for (name, like) in [
            ("m5.large", vec!["m5a.large", "m5dn.large"]),
            ("m5a.large", vec!["m5.large", "m5dn.large"]),
            ("m5.xlarge", vec![]),
            ("m6i.large", vec![]),
            ("m5g.large", vec![]),
            ("m5.24xlarge", vec![]),
            ("gr6.4xlarge", vec![]),
            ("no.such", vec![]),
        ] {
            assert_eq!(catalogue.similar_to(name), like, "{name}");
        }
    }

    #[test]
    fn family_key_is_family_and_generation() {
        for (name, told) in [
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
            assert_eq!(family_key(name), told, "{name}");
        }
    }

    #[test]
    fn indexing_visits_each_offering_once() {
        let name = |n: usize| format!("m{}.{}xlarge", n / 15, n % 15);
        let types: Vec<_> = (0..1_395).map(|n| instance_type(&name(n), "x86_64", (n % 15) as i32, 8)).collect();
        let mut seen = 0;
        let offers = (0..3 * 1_395).map(|n| (name(n % 1_395), (n / 1_395).to_string())).inspect(|_| seen += 1);
        let catalogue = InstanceTypeCatalog::new(&types, offers);
        assert_eq!(seen, 3 * 1_395);
        assert_eq!(catalogue.similar.values().map(Vec::len).sum::<usize>(), 1_395, "a question meets only like types");
    }

    #[test]
    fn types_are_offered_only_in_listed_zones() {
        let catalogue = catalogue();
        assert!(
            catalogue.offered_in_zones("m5a.large", &["a", "b"]) && catalogue.offered_in_zones("m5dn.large", &["a"])
        );
        assert!(
            !catalogue.offered_in_zones("m5dn.large", &["a", "b"]) && !catalogue.offered_in_zones("m5a.large", &["c"])
        );
        assert!(!catalogue.offered_in_zones("no.such", &["a"]));
    }
}
