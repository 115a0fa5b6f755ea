//! A fake API server for tests: a function responds to every request.

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use kube::Client;
use serde_json::{Value, json};

/// One request as the fake API server receives it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub method: String,
    pub path: String,
    pub query: String,
    pub content_type: String,
    pub body: Value,
}

impl Call {
    /// Method and path, for pattern matching.
    pub(crate) fn route(&self) -> (&str, &str) {
        (&self.method, &self.path)
    }
}

/// A client whose requests get a status code and a JSON body from `handler`.
pub(crate) fn client<H>(handler: H) -> Client
where
    H: Fn(Call) -> (u16, Value) + Clone + Send + Sync + 'static,
{
    let respond = move |request: Request| {
        let handler = handler.clone();
        async move {
            let (parts, body) = request.into_parts();
            let bytes = axum::body::to_bytes(body, usize::MAX).await.expect("a body");
            let header = parts.headers.get("content-type");
            let (code, body) = handler(Call {
                method: parts.method.to_string(),
                path: parts.uri.path().to_owned(),
                query: parts.uri.query().unwrap_or_default().to_owned(),
                content_type: header.map_or(String::new(), |value| value.to_str().expect("a text header").to_owned()),
                body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
            });
            (StatusCode::from_u16(code).expect("a status code"), body.to_string())
        }
    };
    Client::new(Router::new().fallback(respond), "default")
}

/// An error response in the API server's format.
pub(crate) fn failure(code: u16, reason: &str, message: &str) -> (u16, Value) {
    let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
        "code": code, "reason": reason, "message": message});
    (code, body)
}

/// An error response with a cause, as for blocked evictions and terminating namespaces.
pub(crate) fn failure_with_cause(code: u16, reason: &str, cause: &str, message: &str) -> (u16, Value) {
    let (code, mut body) = failure(code, reason, message);
    body["details"] = json!({"causes": [{"reason": cause, "message": message}]});
    (code, body)
}
