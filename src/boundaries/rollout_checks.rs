//! `rollout.checks`: queries of Prometheus that must have no result while groups switch to a revision.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde_json::Value;

use super::error::{ConfigWarning, ErrorList};
use super::rollout_fields::{Fields, exact_keys, parse_duration, parse_name};
use super::section::Section;
use crate::api::schema;

const CHECK_KEYS: [&str; 3] = ["name", "query", "for"];

/// The most checks of a policy: each is a line of the status, and a query every half minute.
pub(super) const MAX_CHECKS: usize = 16;

/// The longest query, in bytes.
pub(super) const MAX_QUERY: usize = 4096;

/// A query that fails when it has a result, as the expression of an alert rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RolloutCheck {
    /// Name, unique among the checks.
    pub name: String,
    /// The PromQL query, which is sent to `--prometheus-url`.
    pub query: Query,
    /// How long it must fail until the rollout halts, and how long it must be ok until a wave passes.
    pub r#for: SignedDuration,
}

/// A PromQL query with variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Query(Vec<QueryPart>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum QueryPart {
    Text(String),
    Variable(Variable),
}

/// What stands for a value of the rollout in a query, as `$` and the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumString, strum::VariantArray)]
#[strum(serialize_all = "UPPERCASE")]
pub(crate) enum Variable {
    /// `rollout.release`.
    Release,
    /// The hash of the revision's content.
    Hash,
    /// `--cluster-name`.
    Cluster,
    /// The name of the revision, such as r14.
    Revision,
}

impl Query {
    /// Splits a text into its parts. The error is a `$` that begins no variable.
    fn parse(text: &str) -> Result<Self, String> {
        let (mut parts, mut rest) = (vec![], text);
        while let Some(at) = rest.find('$') {
            let (before, after) = (&rest[..at], &rest[at + 1..]);
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let end = after.find(|c| !is_name(c)).unwrap_or(after.len());
            // `$1` and `${1}` are groups of a regular expression, and a lone `$` is its end.
            let begins_name = after.trim_start_matches('{').starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
            parts.push(QueryPart::Text(before.to_owned()));
            match after[..end].parse() {
                Ok(variable) => {
                    parts.push(QueryPart::Variable(variable));
                    rest = &after[end..];
                }
                Err(_) if !begins_name => {
                    parts.push(QueryPart::Text("$".to_owned()));
                    rest = after;
                }
                Err(_) => return Err(format!("${}", if end == 0 { "{" } else { &after[..end] })),
            }
        }
        parts.push(QueryPart::Text(rest.to_owned()));
        Ok(Self(parts))
    }

    /// Whether the query has a variable.
    pub(crate) fn uses(&self, variable: Variable) -> bool {
        self.0.contains(&QueryPart::Variable(variable))
    }

    /// The query with the values of its variables.
    ///
    /// # Errors
    /// The first variable whose value is missing, or must not be part of a query.
    pub(crate) fn with_values<'a>(&self, value: impl Fn(Variable) -> Option<&'a str>) -> Result<String, Variable> {
        let text = |part: &QueryPart| match part {
            QueryPart::Text(text) => Ok(text.clone()),
            QueryPart::Variable(variable) => {
                value(*variable).filter(|value| is_safe_value(value)).map(str::to_owned).ok_or(*variable)
            }
        };
        self.0.iter().map(text).collect()
    }
}

/// Whether a value means itself wherever it stands in a query: it ends no string and begins no operator.
fn is_safe_value(value: &str) -> bool {
    !value.is_empty() && value.chars().all(|c| c.is_ascii_alphanumeric() || "._-:".contains(c))
}

/// Parses the checks. `release` is `None` when it cannot be read, which is an error already.
pub(super) fn parse_checks(
    section: &Section,
    value: &Value,
    release: Option<&str>,
) -> Result<Vec<RolloutCheck>, ErrorList> {
    let items = section.list(value, "checks")?;
    if items.len() > MAX_CHECKS {
        let message = format!("has {} items; at most {MAX_CHECKS} are possible", items.len());
        return Err(section.error("checks", &message, "join queries with `or`").into());
    }
    let (mut checks, mut names, mut errors) = (vec![], BTreeMap::new(), ErrorList::default());
    for (index, item) in items.iter().enumerate() {
        let at = format!("checks[{index}]");
        let root = exact_keys(section, item, &at, &CHECK_KEYS, &mut errors);
        let name = errors.or_default(parse_name(section, &root, &at, "check", "node-errors"));
        if let Some(first) = names.insert(name.clone(), index).filter(|_| !name.is_empty()) {
            let message = format!("{name} is also the name of checks[{first}]");
            errors.push(section.error(&format!("{at}.name"), &message, "give each check a name of its own"));
        }
        let query = errors.ok(parse_query(section, &root, &at, release));
        let r#for =
            errors.or_default(parse_duration(section, root.get("for"), &format!("{at}.for"), SignedDuration::ZERO));
        checks.extend(query.map(|query| RolloutCheck { name, query, r#for }));
    }
    errors.into_result(checks)
}

fn parse_query(section: &Section, root: &Fields, at: &str, release: Option<&str>) -> Result<Query, ErrorList> {
    let path = format!("{at}.query");
    if root.may_be_misspelled("query") {
        return Err(ErrorList::default());
    }
    let text = section.text(root.get("query"), &path)?;
    if text.trim().is_empty() {
        return Err(section.error(at, "has no query", "write query: a PromQL expression, such as 'up == 0'").into());
    }
    if text.len() > MAX_QUERY {
        let message = format!("has {} bytes; at most {MAX_QUERY} are possible", text.len());
        return Err(section.error(&path, &message, "move a part of it into a recording rule of Prometheus").into());
    }
    let query = Query::parse(text.trim()).map_err(|unknown| {
        let known: Vec<String> =
            <Variable as strum::VariantArray>::VARIANTS.iter().map(|known| format!("${known}")).collect();
        // A misspelled variable would match no series, and the check would always be ok.
        let remedy = schema::closest_match(&unknown, known.iter().map(String::as_str))
            .map_or_else(|| format!("use one of {}", known.join(", ")), |near| format!("did you mean {near:?}?"));
        section.error(&path, &format!("{unknown} is not a known variable"), &remedy)
    })?;
    if let Some(release) = release
        && query.uses(Variable::Release)
        && !is_safe_value(release)
    {
        let message = match release.is_empty() {
            true => "uses $RELEASE, and the key rollout has no release".to_owned(),
            false => format!("uses $RELEASE, and the release {release:?} has characters that are not replaced safely"),
        };
        let remedy = "write release with letters, digits and . _ - : only, such as 2026-08-20, or leave $RELEASE out";
        return Err(section.error(&path, &message, remedy).into());
    }
    Ok(query)
}

/// Warnings about checks that this process cannot run: no wave opens or passes.
pub(super) fn warn_about_checks(
    section: &Section,
    checks: &[RolloutCheck],
    has_prometheus: bool,
    has_cluster: bool,
    warnings: &mut Vec<ConfigWarning>,
) {
    if !checks.is_empty() && !has_prometheus {
        let message = "cannot be asked, so that no wave opens or passes: the controller runs without --prometheus-url";
        section.warn("checks", message, || "set that flag, or remove the checks".to_owned(), warnings);
    }
    let of_cluster = checks.iter().position(|check| check.query.uses(Variable::Cluster));
    if let Some(index) = of_cluster.filter(|_| !has_cluster) {
        let path = format!("checks[{index}].query");
        let message = "uses $CLUSTER, and the controller runs without --cluster-name, so that no wave opens or passes";
        section.warn(&path, message, || "set that flag, or leave $CLUSTER out".to_owned(), warnings);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(query: &str, release: &str) -> Result<String, Variable> {
        let value = |variable| match variable {
            Variable::Release => Some(release),
            Variable::Hash => Some("7c1f0a3b"),
            Variable::Cluster => None,
            Variable::Revision => Some("r14"),
        };
        Query::parse(query).expect("a query").with_values(value)
    }

    #[test]
    fn variables_are_replaced_once_and_a_lone_dollar_stays() {
        let query = r#"x{release="$RELEASE",h=~"a.*$",rev="$REVISION"}[5m] > 5 or y{h="$HASH"}"#;
        let expected = r#"x{release="2026-08-20",h=~"a.*$",rev="r14"}[5m] > 5 or y{h="7c1f0a3b"}"#;
        assert_eq!(replaced(query, "2026-08-20").as_deref(), Ok(expected));
        for query in ["up$", r#"label_replace(up, "a", "$1-${1}", "b", "(.*)$")"#] {
            assert_eq!(replaced(query, "a").as_deref(), Ok(query));
        }
        assert_eq!(replaced("a $RELEASE-b", "c").as_deref(), Ok("a c-b"));
    }

    /// The admin of one ConfigMap template and the author of a release are not always the same user.
    #[test]
    fn no_value_becomes_a_part_of_the_query_s_syntax() {
        for release in ["a\"} or vector(1) #", "a'", "a`", "a\\", "a b", "a\nb", "", "ä", "$HASH", "a{", "a)", "a*"] {
            assert_eq!(replaced(r#"x{release="$RELEASE"}"#, release), Err(Variable::Release), "{release:?}");
        }
        assert_eq!(replaced(r#"x{c="$CLUSTER"}"#, "a"), Err(Variable::Cluster), "the flag is not set");
    }

    proptest::proptest! {
        /// Whatever the release is called: the query has the structure that its author gave it.
        #[test]
        fn substituted_values_cannot_change_the_query_syntax(release in ".{0,12}") {
            if let Ok(text) = replaced(r#"x{release="$RELEASE"} > 0"#, &release) {
                let value = text.strip_prefix(r#"x{release=""#).and_then(|rest| rest.strip_suffix(r#""} > 0"#));
                let syntax = ['"', '\'', '`', '\\', '{', '}', '(', '\n', ' '];
                let is_plain = value.is_some_and(|value| !value.contains(syntax));
                proptest::prop_assert!(is_plain);
            }
        }
    }
}
