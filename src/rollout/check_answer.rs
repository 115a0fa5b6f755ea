//! What an answer of Prometheus means for a check.

use serde::Deserialize;
use serde_json::Value;

use crate::api::CheckState;
use crate::util::text::shorten;

/// The most characters of a message of Prometheus that are shown.
const MAX_MESSAGE: usize = 200;

/// The answer to a check's query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckAnswer {
    /// The state that the answer means.
    pub state: CheckState,
    /// Why the check is not ok.
    pub message: Option<String>,
}

impl CheckAnswer {
    /// The state without a conclusive answer.
    pub(crate) fn unknown(message: &str) -> Self {
        let message = shorten(message, MAX_MESSAGE);
        Self { state: CheckState::Unknown, message: Some(message) }
    }
}

/// The body of an answer of Prometheus's HTTP API.
#[derive(Deserialize)]
struct Body {
    status: String,
    #[serde(default)]
    data: Data,
    #[serde(default)]
    error: String,
    #[serde(default)]
    warnings: Option<Vec<Value>>,
}

#[derive(Default, Deserialize)]
struct Data {
    #[serde(rename = "resultType")]
    result_type: String,
    result: Value,
}

/// Reads the answer to an instant query. Only a complete, successful answer is conclusive: Prometheus's HTTP API gives
/// `warnings` with data that may be incomplete.
pub(crate) fn read_answer(status: u16, body: &[u8]) -> CheckAnswer {
    let parsed: Option<Body> = serde_json::from_slice(body).ok();
    match (status, parsed) {
        (300..=399, _) => CheckAnswer::unknown(&format!(
            "the server redirects (HTTP {status}), which is not followed; set --prometheus-url to the final address"
        )),
        (401 | 403, _) => CheckAnswer::unknown(&format!(
            "the server does not allow the query (HTTP {status}); see --prometheus-token-file"
        )),
        (_, Some(body)) if !body.error.is_empty() => CheckAnswer::unknown(&format!("HTTP {status}: {}", body.error)),
        (200..=299, Some(body)) if body.status == "success" => read_success(body),
        (200..=299, _) => CheckAnswer::unknown("the answer is not one of Prometheus's HTTP API; see --prometheus-url"),
        _ => CheckAnswer::unknown(&format!("HTTP {status}")),
    }
}

fn read_success(body: Body) -> CheckAnswer {
    let warnings = body.warnings.unwrap_or_default();
    if let Some(warning) = warnings.first() {
        let text = warning.as_str().map_or_else(|| warning.to_string(), str::to_owned);
        return CheckAnswer::unknown(&format!("the answer may be incomplete: {text}"));
    }
    let results = match (body.data.result_type.as_str(), &body.data.result) {
        ("vector", Value::Array(results)) => results,
        ("scalar" | "string" | "matrix", _) => {
            let found = &body.data.result_type;
            return CheckAnswer::unknown(&format!(
                "the query gives a {found}, and not an instant vector; write a comparison such as sum(x) > 5"
            ));
        }
        _ => return CheckAnswer::unknown("the answer has no result of a known type"),
    };
    let Some(numbers) = results.iter().map(is_number).collect::<Option<Vec<bool>>>() else {
        return CheckAnswer::unknown("the answer has a sample without a value");
    };
    match (numbers.len(), numbers.iter().filter(|is_number| **is_number).count()) {
        (0, _) => CheckAnswer { state: CheckState::Ok, message: None },
        (_, 0) => CheckAnswer::unknown("the result is NaN, not a number; compare it with a limit, as in x / y > 0.1"),
        (_, 1) => CheckAnswer { state: CheckState::Failing, message: Some("the query has a result".to_owned()) },
        (_, count) => {
            CheckAnswer { state: CheckState::Failing, message: Some(format!("the query has {count} results")) }
        }
    }
}

/// Whether a sample of a vector is a number, or a native histogram; `None` when it is not a sample.
fn is_number(sample: &Value) -> Option<bool> {
    if sample["histogram"].is_array() {
        return Some(true);
    }
    let value: f64 = sample["value"][1].as_str()?.parse().ok()?;
    Some(!value.is_nan())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(status: u16, body: &Value) -> CheckAnswer {
        read_answer(status, body.to_string().as_bytes())
    }

    fn vector(values: &[&str]) -> Value {
        let samples: Vec<_> =
            values.iter().map(|value| json!({"metric": {"node": "a"}, "value": [1_800_000_000.5, value]})).collect();
        json!({"status": "success", "data": {"resultType": "vector", "result": samples}})
    }

    #[test]
    fn empty_result_is_ok_and_any_other_fails() {
        assert_eq!(read(200, &vector(&[])).state, CheckState::Ok);
        for (values, message) in [
            (vec!["0"], "a result"),
            (vec!["+Inf"], "a result"),
            (vec!["7", "8"], "2 results"),
            (vec!["NaN", "1"], "a result"),
        ] {
            let answer = read(200, &vector(&values));
            assert_eq!(answer.state, CheckState::Failing, "{values:?}");
            assert!(answer.message.is_some_and(|text| text.contains(message)), "{values:?}");
        }
        let histogram = json!({"metric": {}, "histogram": [1, {"count": "1"}]});
        let body = json!({"status": "success", "data": {"resultType": "vector", "result": [histogram]}});
        assert_eq!(read(200, &body).state, CheckState::Failing);
        // Hints are no doubt about the data.
        let mut hinted = vector(&[]);
        hinted["infos"] = json!(["metric might not be a counter"]);
        hinted["warnings"] = json!(null);
        assert_eq!(read(200, &hinted).state, CheckState::Ok);
    }

    /// What is not known must let no wave pass, and must halt nothing.
    #[test]
    fn any_other_answer_is_unknown_with_a_reason() {
        let with = |key: &str, value: Value| {
            let mut body = vector(&[]);
            body[key] = value;
            body
        };
        let of_type =
            |name: &str, result: Value| json!({"status": "success", "data": {"resultType": name, "result": result}});
        for (status, body, message) in [
            (200, vector(&["NaN"]), "NaN"),
            (200, with("warnings", json!(["store 10.0.0.1 is unavailable"])), "store 10.0.0.1"),
            (200, with("status", json!("error")), "not one of Prometheus's"),
            (200, with("error", json!("query timed out")), "query timed out"),
            (200, of_type("scalar", json!([1, "0"])), "gives a scalar"),
            (200, of_type("matrix", json!([])), "gives a matrix"),
            (200, of_type("vector", json!({})), "no result of a known type"),
            (200, of_type("vector", json!([{"metric": {}}])), "without a value"),
            (200, of_type("streams", json!([])), "no result of a known type"),
            (200, json!({"status": "success"}), "no result"),
            (200, json!([]), "not one of Prometheus's"),
            (204, json!(null), "not one of Prometheus's"),
            (301, vector(&[]), "redirects (HTTP 301)"),
            (308, vector(&["1"]), "set --prometheus-url"),
            (401, json!({}), "--prometheus-token-file"),
            (400, json!({"status": "error", "error": "parse error: unexpected end"}), "HTTP 400: parse error"),
            (404, json!("page not found"), "HTTP 404"),
            (422, vector(&[]), "HTTP 422"),
            (500, vector(&["1"]), "HTTP 500"),
            (503, json!({"status": "error", "error": "x".repeat(5000)}), "HTTP 503: xxx"),
        ] {
            let answer = read(status, &body);
            assert_eq!(answer.state, CheckState::Unknown, "{status} {body}");
            let text = answer.message.unwrap_or_default();
            assert!(text.contains(message) && text.len() <= 800, "{status} {body}: {text}");
        }
        let truncated = vector(&["1"]).to_string();
        for end in 0..truncated.len() {
            assert_eq!(read_answer(200, &truncated.as_bytes()[..end]).state, CheckState::Unknown);
        }
        assert_eq!(read_answer(200, b"<html>login</html>").state, CheckState::Unknown);
    }

    proptest::proptest! {
        /// The controller never accepts an answer with another status, or other bytes, as a result.
        #[test]
        fn only_a_complete_response_is_an_answer(status in 100u16..600, body in ".{0,60}") {
            proptest::prop_assert_eq!(read_answer(status, body.as_bytes()).state, CheckState::Unknown);
            let answer = read(status, &vector(&[]));
            proptest::prop_assert_eq!(answer.state == CheckState::Ok, (200..300).contains(&status));
        }
    }
}
