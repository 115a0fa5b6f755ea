//! Which instance types there are, which of them are alike, and where they are offered.

use std::collections::{HashMap, HashSet};

use super::types::InstanceType;

/// The instance types of a line or of more, indexed once: what is asked of them afterwards costs as much as the answer
/// is long.
#[derive(Debug, Default)]
pub struct Catalogue {
    /// Types by what makes them alike, in the order of their names.
    alike: HashMap<Kind, Vec<String>>,
    kinds: HashMap<String, Kind>,
    /// Types by name.
    types: HashMap<String, InstanceType>,
    /// Zones by type.
    zones: HashMap<String, HashSet<String>>,
}

/// What makes types alike: family, generation, architecture and size.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Kind {
    /// Family and generation.
    line: String,
    architecture: String,
    vcpus: i32,
    memory: i64,
    metal: bool,
}

/// The family and generation of a type by its name: `m5` of `m5dn.large`; types of another line are never like it.
/// `None` for what can be no type's name.
pub fn line(name: &str) -> Option<&str> {
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
fn kind(of: &InstanceType) -> Option<Kind> {
    let (_, size) = of.name.split_once('.')?;
    Some(Kind {
        line: line(&of.name)?.into(),
        architecture: of.architecture()?.into(),
        vcpus: of.vcpus,
        memory: of.memory,
        // It takes many times as long to start.
        metal: size.starts_with("metal"),
    })
}

impl Catalogue {
    /// Indexes types and offers (type, zone), each looked at once.
    pub fn new(types: &[InstanceType], offers: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut catalogue = Catalogue::default();
        for one in types {
            let Some(kind) = kind(one) else { continue };
            catalogue.alike.entry(kind.clone()).or_default().push(one.name.clone());
            catalogue.kinds.insert(one.name.clone(), kind);
            catalogue.types.insert(one.name.clone(), one.clone());
        }
        catalogue.alike.values_mut().for_each(|names| names.sort());
        for (name, zone) in offers {
            catalogue.zones.entry(name).or_default().insert(zone);
        }
        catalogue
    }

    /// The types like one, itself not among them, in the order of their names; none for a type that is not known.
    pub fn like(&self, name: &str) -> Vec<&str> {
        let alike = self.kinds.get(name).and_then(|kind| self.alike.get(kind));
        alike.into_iter().flatten().map(String::as_str).filter(|other| *other != name).collect()
    }

    /// What there is to know of a type.
    pub fn get(&self, name: &str) -> Option<&InstanceType> {
        self.types.get(name)
    }

    /// Whether a type is offered in each of some zones.
    pub fn offered(&self, name: &str, zones: &[&str]) -> bool {
        let offered = self.zones.get(name);
        zones.iter().all(|zone| offered.is_some_and(|o| o.contains(*zone)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, architecture: &str, vcpus: i32, memory: i64) -> InstanceType {
        InstanceType {
            name: name.into(),
            architectures: vec![architecture.into()],
            vcpus,
            memory,
            ..InstanceType::default()
        }
    }

    fn catalogue() -> Catalogue {
        let x86 = |name: &str, vcpus, gib: i64| of(name, "x86_64", vcpus, gib * 1024);
        let types = [
            x86("m5.large", 2, 8),
            x86("m5a.large", 2, 8),
            x86("m5dn.large", 2, 8),
            x86("m5.xlarge", 4, 16),
            x86("m6i.large", 2, 8),
            of("m5g.large", "arm64", 2, 8 * 1024),
            x86("mac5.large", 2, 8),
            x86("m5.metal", 96, 384),
            x86("m5.24xlarge", 96, 384),
            x86("gr6.4xlarge", 16, 128),
            x86("g6e.4xlarge", 16, 128),
        ];
        let everywhere = types.iter().flat_map(|t| ["a", "b"].map(|z| (t.name.clone(), z.to_owned())));
        Catalogue::new(&types, everywhere.filter(|o| *o != ("m5dn.large".to_owned(), "b".to_owned())))
    }

    #[test]
    fn types_of_one_family_generation_architecture_and_size_are_alike() {
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
            assert_eq!(catalogue.like(name), like, "{name}");
        }
    }

    #[test]
    fn a_line_is_the_family_and_the_generation() {
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
            assert_eq!(line(name), told, "{name}");
        }
    }

    #[test]
    fn each_of_many_types_and_offers_is_looked_at_once() {
        let name = |n: usize| format!("m{}.{}xlarge", n / 15, n % 15);
        let types: Vec<_> = (0..1_395).map(|n| of(&name(n), "x86_64", (n % 15) as i32, 8)).collect();
        let mut seen = 0;
        let offers = (0..3 * 1_395).map(|n| (name(n % 1_395), (n / 1_395).to_string())).inspect(|_| seen += 1);
        let catalogue = Catalogue::new(&types, offers);
        assert_eq!(seen, 3 * 1_395);
        assert_eq!(catalogue.alike.values().map(Vec::len).sum::<usize>(), 1_395, "a question meets only like types");
    }

    #[test]
    fn a_type_is_offered_where_aws_says_so_and_nowhere_else() {
        let catalogue = catalogue();
        assert!(catalogue.offered("m5a.large", &["a", "b"]) && catalogue.offered("m5dn.large", &["a"]));
        assert!(!catalogue.offered("m5dn.large", &["a", "b"]) && !catalogue.offered("m5a.large", &["c"]));
        assert!(!catalogue.offered("no.such", &["a"]));
    }
}
