//! A fake HTTP connection for tests of the adapters. It records what the SDK sends.

use std::sync::{Arc, Mutex};

use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, SharedHttpClient, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::body::SdkBody;

/// Gives every request the same response.
#[derive(Clone, Debug)]
pub(super) struct FakeHttp {
    response: Option<(u16, &'static str)>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl FakeHttp {
    /// Every response is lost.
    pub(super) fn without_response() -> Self {
        FakeHttp { response: None, requests: Arc::default() }
    }

    /// Every response is successful and has this body.
    pub(super) fn with_response(body: &'static str) -> Self {
        FakeHttp { response: Some((200, body)), requests: Arc::default() }
    }

    /// Every response is an error with this HTTP status and body.
    pub(super) fn with_error(status: u16, body: &'static str) -> Self {
        FakeHttp { response: Some((status, body)), requests: Arc::default() }
    }

    /// The client for an SDK configuration.
    pub(super) fn client(&self) -> SharedHttpClient {
        let connector = SharedHttpConnector::new(self.clone());
        http_client_fn(move |_, _| connector.clone())
    }

    /// The bodies of the requests so far.
    pub(super) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

impl HttpConnector for FakeHttp {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let body = request.body().bytes().map(String::from_utf8_lossy).unwrap_or_default();
        self.requests.lock().unwrap().push(body.into_owned());
        HttpConnectorFuture::ready(match self.response {
            Some((status, body)) => {
                Ok(HttpResponse::new(status.try_into().expect("a valid status"), SdkBody::from(body)))
            }
            None => Err(ConnectorError::io("the connection was closed".into())),
        })
    }
}
