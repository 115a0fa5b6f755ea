//! Kubernetes label selectors in their textual form, applied to a group's annotations: `a`, `!a`, `a=b`, `a==b`,
//! `a!=b`, `a in (b,c)`, `a notin (b,c)`, `a>1`, `a<1`, joined by commas.

use std::collections::{BTreeMap, BTreeSet};

use kube::core::{Expression, SelectorExt};

/// A parsed selector; an empty one matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AnnotationSelector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    Expression(Expression),
    Greater(String, i64),
    Less(String, i64),
}

impl AnnotationSelector {
    /// Parses a selector.
    ///
    /// # Errors
    /// What was found and what was expected.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut tokens = Tokens { all: tokenize(text), next: 0 };
        let mut requirements = vec![];
        if tokens.peek() == Token::End {
            return Ok(Self::default());
        }
        loop {
            requirements.push(parse_requirement(&mut tokens)?);
            match tokens.advance() {
                Token::End => return Ok(Self(requirements)),
                Token::Comma => {}
                other => return Err(format!("found {other}, expected ',' or the end")),
            }
        }
    }

    /// Whether a set of annotations meets every requirement.
    pub(crate) fn matches(&self, annotations: &BTreeMap<String, String>) -> bool {
        let number = |key: &String| annotations.get(key).and_then(|value| value.parse::<i64>().ok());
        self.0.iter().all(|requirement| match requirement {
            Requirement::Expression(expression) => expression.matches(annotations),
            Requirement::Greater(key, than) => number(key).is_some_and(|value| value > *than),
            Requirement::Less(key, than) => number(key).is_some_and(|value| value < *than),
        })
    }

    /// Whether it has each requirement of another selector, so that it matches nothing that the other one does not.
    pub(crate) fn narrows(&self, other: &Self) -> bool {
        other.0.iter().all(|requirement| self.0.contains(requirement))
    }

    /// Whether a requirement is about the annotation with this key.
    pub(crate) fn has_key(&self, key: &str) -> bool {
        self.0.iter().any(|requirement| requirement.key() == key)
    }
}

impl Requirement {
    fn key(&self) -> &str {
        match self {
            Self::Greater(key, _) | Self::Less(key, _) => key,
            Self::Expression(
                Expression::In(key, _)
                | Expression::NotIn(key, _)
                | Expression::Equal(key, _)
                | Expression::NotEqual(key, _)
                | Expression::Exists(key)
                | Expression::DoesNotExist(key),
            ) => key,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Open,
    Close,
    Comma,
    Not,
    Equal,
    NotEqual,
    Greater,
    Less,
    End,
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Word(word) => return write!(f, "{word:?}"),
            Self::Open => "'('",
            Self::Close => "')'",
            Self::Comma => "','",
            Self::Not => "'!'",
            Self::Equal => "'='",
            Self::NotEqual => "'!='",
            Self::Greater => "'>'",
            Self::Less => "'<'",
            Self::End => "the end",
        })
    }
}

struct Tokens {
    all: Vec<Token>,
    next: usize,
}

impl Tokens {
    fn peek(&self) -> Token {
        self.all.get(self.next).cloned().unwrap_or(Token::End)
    }

    fn advance(&mut self) -> Token {
        let token = self.peek();
        self.next += 1;
        token
    }
}

fn tokenize(text: &str) -> Vec<Token> {
    let mut tokens = vec![];
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        tokens.push(match c {
            c if c.is_whitespace() => continue,
            '(' => Token::Open,
            ')' => Token::Close,
            ',' => Token::Comma,
            '>' => Token::Greater,
            '<' => Token::Less,
            '!' if chars.next_if_eq(&'=').is_some() => Token::NotEqual,
            '!' => Token::Not,
            '=' => {
                chars.next_if_eq(&'=');
                Token::Equal
            }
            c => {
                let mut word = String::from(c);
                while let Some(c) = chars.next_if(|c| !c.is_whitespace() && !"()!,=<>".contains(*c)) {
                    word.push(c);
                }
                Token::Word(word)
            }
        });
    }
    tokens
}

fn parse_requirement(tokens: &mut Tokens) -> Result<Requirement, String> {
    let negated = tokens.peek() == Token::Not;
    if negated {
        tokens.advance();
    }
    let key = match tokens.advance() {
        Token::Word(word) => valid_key(word)?,
        other => return Err(format!("found {other}, expected a key")),
    };
    if negated {
        return Ok(Requirement::Expression(Expression::DoesNotExist(key)));
    }
    if matches!(tokens.peek(), Token::End | Token::Comma) {
        return Ok(Requirement::Expression(Expression::Exists(key)));
    }
    Ok(match tokens.advance() {
        Token::Equal => Requirement::Expression(Expression::Equal(key, parse_value(tokens)?)),
        Token::NotEqual => Requirement::Expression(Expression::NotEqual(key, parse_value(tokens)?)),
        Token::Greater => Requirement::Greater(key, parse_number(tokens)?),
        Token::Less => Requirement::Less(key, parse_number(tokens)?),
        Token::Word(word) if word == "in" => Requirement::Expression(Expression::In(key, parse_values(tokens)?)),
        Token::Word(word) if word == "notin" => Requirement::Expression(Expression::NotIn(key, parse_values(tokens)?)),
        other => {
            return Err(format!("found {other} after {key:?}, expected one of = == != > < in notin"));
        }
    })
}

fn parse_value(tokens: &mut Tokens) -> Result<String, String> {
    match tokens.peek() {
        Token::End | Token::Comma => Ok(String::new()),
        Token::Word(word) => {
            tokens.advance();
            valid_value(word)
        }
        other => Err(format!("found {other}, expected a value")),
    }
}

fn parse_number(tokens: &mut Tokens) -> Result<i64, String> {
    let text = parse_value(tokens)?;
    text.parse().map_err(|_| format!("{text:?} is not a whole number, as '>' and '<' need"))
}

/// Parses a list in parentheses. A missing item between two commas or next to a parenthesis is the empty value.
fn parse_values(tokens: &mut Tokens) -> Result<BTreeSet<String>, String> {
    match tokens.advance() {
        Token::Open => {}
        other => return Err(format!("found {other}, expected '('")),
    }
    if tokens.peek() == Token::Close {
        // Kubernetes reads an empty list as the empty value.
        tokens.advance();
        return Ok(BTreeSet::from([String::new()]));
    }
    let mut found = BTreeSet::new();
    loop {
        found.insert(match tokens.peek() {
            Token::Word(word) => {
                tokens.advance();
                valid_value(word)?
            }
            _ => String::new(),
        });
        match tokens.advance() {
            Token::Comma => {}
            Token::Close => return Ok(found),
            other => return Err(format!("found {other}, expected ',' or ')'")),
        }
    }
}

fn valid_key(key: String) -> Result<String, String> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key.as_str()),
    };
    let lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let subdomain = |text: &str| {
        text.len() <= 253
            && text.split('.').all(|part| {
                part.starts_with(lower) && part.ends_with(lower) && part.chars().all(|c| lower(c) || c == '-')
            })
    };
    if name.is_empty() || !is_name(name) || !prefix.is_none_or(subdomain) {
        return Err(format!("{key:?} is not a key ([prefix/]name)"));
    }
    Ok(key)
}

fn valid_value(value: String) -> Result<String, String> {
    if is_name(&value) { Ok(value) } else { Err(format!("{value:?} is not a label value")) }
}

fn is_name(text: &str) -> bool {
    text.len() <= 63
        && text.chars().next().is_none_or(|c| c.is_ascii_alphanumeric())
        && text.chars().next_back().is_none_or(|c| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn every_operator_matches_as_in_kubernetes() {
        let annotations = set(&[("os", "windows"), ("in", "notin"), ("n", "5"), ("e", ""), ("x.io/a", "b")]);
        for (text, matches) in [
            ("", true),
            ("  ", true),
            ("os", true),
            ("!os", false),
            ("! nothing", true),
            ("os=windows", true),
            ("os == windows", true),
            ("os!=windows", false),
            ("nothing!=x", true),
            ("os in (linux, windows)", true),
            ("os in(linux,windows)", true),
            ("os notin (windows)", false),
            ("nothing notin (a)", true),
            ("nothing in (a)", false),
            ("x.io/a = b", true),
            ("e=", true),
            ("e=,os", true),
            ("e in (,a)", true),
            ("e in (a,)", true),
            ("e in (,)", true),
            ("os in (a,,b)", false),
            ("n>4", true),
            ("n<5", false),
            ("os>1", false),
            ("in=notin", true),
            ("in in (in,notin)", true),
            ("os=windows,n=4", false),
            ("os=windows , n=5,!z", true),
        ] {
            assert_eq!(AnnotationSelector::parse(text).map(|s| s.matches(&annotations)), Ok(matches), "{text}");
        }
    }

    #[test]
    fn invalid_selectors_are_rejected() {
        for text in [
            ",",
            "a,",
            ",a",
            "a b",
            "a=b c",
            "a in",
            "a in (b",
            "a in b",
            "a=(b)",
            "!a=b",
            "!!a",
            "a>b",
            "a!b",
            "=a",
            "-a",
            "A/b/c",
            "UPPER.io/a",
            "a=-b",
            "a in (b c)",
            "a=b=c",
            "a==",
            "x/=1",
        ] {
            let result = AnnotationSelector::parse(text);
            if text == "a==" {
                assert!(result.is_ok(), "an empty value is a value");
            } else {
                assert!(result.is_err(), "{text} gave {result:?}");
            }
        }
    }

    #[test]
    fn empty_list_is_the_empty_value() {
        let selector = |text| AnnotationSelector::parse(text).unwrap();
        assert_eq!(selector("a in ()"), selector("a in (,)"));
        assert!(selector("a in (),b").matches(&set(&[("a", ""), ("b", "x")])));
        assert!(!selector("a in ()").matches(&set(&[("a", "x")])) && !selector("a in ()").matches(&set(&[])));
        assert!(selector("a notin ()").matches(&set(&[])) && !selector("a notin ()").matches(&set(&[("a", "")])));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".*") {
            let _ = AnnotationSelector::parse(&text);
        }

        #[test]
        fn selectors_of_tokens_never_panic(parts in prop::collection::vec(prop::sample::select(vec!["a", "in", "notin", "(", ")", ",", "!", "=", "==", "!=", ">", "<", " ", "1"]), 0..12)) {
            let _ = AnnotationSelector::parse(&parts.concat());
        }

        #[test]
        fn kube_selectors_round_trip(key in "[a-z]{1,8}(/[a-z]{1,4})?", values in prop::collection::btree_set("[a-z0-9]{1,5}", 1..4), pick in 0..6) {
            let first = values.iter().next().cloned().unwrap_or_default();
            let expression = match pick {
                0 => Expression::In(key, values),
                1 => Expression::NotIn(key, values),
                2 => Expression::Equal(key, first),
                3 => Expression::NotEqual(key, first),
                4 => Expression::Exists(key),
                _ => Expression::DoesNotExist(key),
            };
            let read = AnnotationSelector::parse(&expression.to_string());
            prop_assert_eq!(read, Ok(AnnotationSelector(vec![Requirement::Expression(expression)])));
        }
    }
}
