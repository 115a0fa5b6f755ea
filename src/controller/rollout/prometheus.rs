//! The client of the Prometheus server that answers the checks of rollouts.

use std::path::PathBuf;
use std::time::Duration;

use axum::body::to_bytes;
use axum::http::{HeaderValue, Request, Uri, header};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::{Client, Config};

use crate::rollout::{CheckAnswer, read_answer};

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The largest answer, in bytes.
const MAX_ANSWER: usize = 1 << 20;

/// A client of Prometheus's HTTP API. It has the TLS settings of the Kubernetes client, and follows no redirect.
pub(crate) struct Prometheus {
    client: Client,
    token_file: Option<PathBuf>,
    /// How long an answer may take.
    timeout: Duration,
}

impl Prometheus {
    /// A client of the server at `url`, which may have a path. `token_file` contains a bearer token.
    ///
    /// # Errors
    /// The system has no root certificates.
    pub(crate) fn new(url: Uri, token_file: Option<PathBuf>) -> Result<Self, kube::Error> {
        let config = Config::new(url);
        let http = HttpClient::builder(TokioExecutor::new()).build(config.rustls_https_connector()?);
        let client = ClientBuilder::new(http, "").with_layer(&config.base_uri_layer()).build();
        Ok(Self { client, token_file, timeout: TIMEOUT })
    }

    /// The answer to an instant query, see <https://prometheus.io/docs/prometheus/latest/querying/api/#instant-queries>.
    pub(super) async fn query(&self, query: &str) -> CheckAnswer {
        let answer = tokio::time::timeout(self.timeout, self.send(query)).await;
        answer.unwrap_or_else(|_| CheckAnswer::unknown(&format!("no answer within {:?}", self.timeout)))
    }

    async fn send(&self, query: &str) -> CheckAnswer {
        let timeout = format!("{}ms", self.timeout.as_millis());
        let form = form_urlencoded::Serializer::new(String::new())
            .append_pair("query", query)
            .append_pair("timeout", &timeout)
            .finish();
        let mut request = Request::post("/api/v1/query")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(header::ACCEPT, "application/json")
            .body(Body::from(form.into_bytes()))
            .expect("the request is valid");
        match self.token().await {
            Ok(Some(token)) => _ = request.headers_mut().insert(header::AUTHORIZATION, token),
            Ok(None) => {}
            Err(why) => return CheckAnswer::unknown(&format!("--prometheus-token-file {why}")),
        }
        let response = match self.client.send(request).await {
            Ok(response) => response,
            Err(error) => return CheckAnswer::unknown(&format!("no answer: {}", root_cause(&error))),
        };
        let status = response.status().as_u16();
        match to_bytes(axum::body::Body::new(response.into_body()), MAX_ANSWER).await {
            Ok(body) => read_answer(status, &body),
            Err(error) => CheckAnswer::unknown(&format!(
                "the answer breaks off, or is larger than 1 MiB ({}); aggregate the query, as in sum(x) > 5",
                root_cause(&error)
            )),
        }
    }
}

impl Prometheus {
    /// The token, read each time: it may be exchanged.
    async fn token(&self) -> Result<Option<HeaderValue>, String> {
        let Some(path) = &self.token_file else { return Ok(None) };
        let text = tokio::fs::read_to_string(path).await.map_err(|error| format!("cannot be read: {error}"))?;
        let token = HeaderValue::from_str(&format!("Bearer {}", text.trim()));
        let mut token = token.map_err(|_| "does not contain a token".to_owned())?;
        token.set_sensitive(true);
        Ok(Some(token))
    }
}

/// The innermost cause of an error, which is more specific than those around it.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use axum::Router;
    use axum::extract::Request as Received;
    use axum::response::IntoResponse;
    use serde_json::json;

    use super::*;
    use crate::api::CheckState;

    /// A server whose answer to every request is `respond`; returns its address.
    async fn serve<R: IntoResponse + 'static>(respond: fn(String) -> R) -> (Uri, Arc<Mutex<Vec<String>>>) {
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = seen.clone();
        let handler = move |request: Received| {
            let log = log.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = to_bytes(body, usize::MAX).await.expect("a body");
                let text = |name: header::HeaderName| {
                    parts.headers.get(name).map_or("-".to_owned(), |value| value.to_str().expect("a text").to_owned())
                };
                let body = String::from_utf8(body.to_vec()).expect("a text");
                let (token, kind) = (text(header::AUTHORIZATION), text(header::CONTENT_TYPE));
                log.lock().unwrap().push(format!("{} {} {kind} {token} {body}", parts.method, parts.uri));
                respond(parts.uri.path().to_owned())
            }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(handler)).await });
        (format!("http://{address}").parse().expect("a URL"), seen)
    }

    fn empty() -> String {
        json!({"status": "success", "data": {"resultType": "vector", "result": []}}).to_string()
    }

    async fn query(url: &Uri) -> CheckAnswer {
        Prometheus::new(url.clone(), None).expect("a client").query("up == 0").await
    }

    #[tokio::test]
    async fn query_is_posted_below_the_path_of_the_url_with_the_token() {
        let (url, seen) = serve(|_| empty()).await;
        let url: Uri = format!("{url}prefix/").parse().expect("a URL");
        let token = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(token.path(), "secret\n").expect("it is written");
        let prometheus = Prometheus::new(url, Some(token.path().to_owned())).expect("a client");
        let answer = prometheus.query("sum(x{a=\"b&c\"}) > 5 + 1").await;
        assert_eq!(answer, CheckAnswer { state: CheckState::Ok, message: None });
        let expected = "POST /prefix/api/v1/query application/x-www-form-urlencoded Bearer secret \
                        query=sum%28x%7Ba%3D%22b%26c%22%7D%29+%3E+5+%2B+1&timeout=10000ms";
        assert_eq!(*seen.lock().unwrap(), [expected]);
    }

    /// A token must not go to the server that another one names.
    #[tokio::test]
    async fn redirects_are_not_followed() {
        let (url, seen) = serve(|path| match path.as_str() {
            "/api/v1/query" => {
                (axum::http::StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, "/else")], String::new())
            }
            _ => (axum::http::StatusCode::OK, [(header::LOCATION, "/")], empty()),
        })
        .await;
        let answer = query(&url).await;
        assert_eq!((answer.state, seen.lock().unwrap().len()), (CheckState::Unknown, 1));
        assert!(answer.message.is_some_and(|text| text.contains("HTTP 307")));
    }

    #[tokio::test]
    async fn answers_that_are_too_large_or_missing_are_unknown() {
        let (url, _) = serve(|_| " ".repeat(MAX_ANSWER + 1) + &empty()).await;
        let answer = query(&url).await;
        assert!(answer.message.is_some_and(|text| text.contains("larger than 1 MiB")));
        assert_eq!(answer.state, CheckState::Unknown);
        let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = closed.local_addr().expect("an address");
        drop(closed);
        let answer = query(&format!("http://{address}").parse().expect("a URL")).await;
        assert_eq!(answer.state, CheckState::Unknown);
        assert!(answer.message.as_deref().is_some_and(|text| text.contains("refused")), "{:?}", answer.message);
    }

    /// A server that accepts a connection and never answers must not delay the other checks forever.
    #[tokio::test]
    async fn silence_is_unknown_after_the_timeout() {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = silent.local_addr().expect("an address");
        let url = format!("http://{address}").parse().expect("a URL");
        let timeout = Duration::from_millis(100);
        let answer = Prometheus { timeout, ..Prometheus::new(url, None).expect("a client") }.query("up == 0").await;
        assert_eq!(answer, CheckAnswer::unknown("no answer within 100ms"));
    }

    #[tokio::test]
    async fn token_that_cannot_be_read_is_unknown_and_asks_nothing() {
        let (url, seen) = serve(|_| empty()).await;
        let prometheus = Prometheus::new(url.clone(), Some("/does/not/exist".into())).expect("a client");
        let answer = prometheus.query("up == 0").await;
        assert_eq!((answer.state, seen.lock().unwrap().len()), (CheckState::Unknown, 0));
        assert!(answer.message.is_some_and(|text| text.contains("--prometheus-token-file cannot be read")));
        let token = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(token.path(), "sec\nret").expect("it is written");
        let answer = Prometheus { token_file: Some(token.path().into()), ..prometheus }.query("up == 0").await;
        assert_eq!(answer, CheckAnswer::unknown("--prometheus-token-file does not contain a token"));
    }
}
