//! The HTTP server of the controller: `/healthz`, `/readyz` and `/metrics`.

use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::telemetry::metrics::Metrics;

/// Checks whether the controller is ready: all caches have synced, and this process or another one is the leader. The
/// result is the body of `/readyz`.
pub(crate) type ReadinessCheck = Arc<dyn Fn() -> Result<&'static str, String> + Send + Sync>;

#[derive(Clone)]
struct Server {
    metrics: Arc<Metrics>,
    readiness: ReadinessCheck,
}

/// Opens the listener, so that an address in use is an error at startup.
pub(crate) async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    match TcpListener::bind(address).await {
        // Without IPv6 in the kernel, listen on all IPv4 addresses.
        Err(_) if address.ip() == Ipv6Addr::UNSPECIFIED => {
            TcpListener::bind(SocketAddr::from(([0, 0, 0, 0], address.port()))).await
        }
        other => other,
    }
}

/// Serves until `shutdown` becomes true or its sender is dropped. Requests in progress are finished.
pub(crate) async fn serve(
    listener: TcpListener,
    metrics: Arc<Metrics>,
    readiness: ReadinessCheck,
    mut shutdown: watch::Receiver<bool>,
) -> io::Result<()> {
    let server = Server { metrics, readiness };
    let stopped = async move {
        // An error means that the sender was dropped, which also means shutdown.
        let _ = shutdown.wait_for(|stop| *stop).await;
    };
    axum::serve(listener, router(server)).with_graceful_shutdown(stopped).await
}

fn router(server: Server) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok"))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(server)
}

async fn readyz(State(server): State<Server>) -> impl IntoResponse {
    match (server.readiness)() {
        Ok(role) => (StatusCode::OK, role.to_owned()),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, reason),
    }
}

async fn metrics(State(server): State<Server>) -> impl IntoResponse {
    match server.metrics.encode() {
        Ok(text) => {
            let kind = [(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)];
            (kind, text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;

    /// The whole response to one request.
    async fn get_path(address: SocketAddr, path: &'static str) -> String {
        let exchange = move || -> io::Result<String> {
            let mut stream = TcpStream::connect(address)?;
            write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
            let mut response = String::new();
            stream.read_to_string(&mut response)?;
            Ok(response)
        };
        tokio::task::spawn_blocking(exchange).await.unwrap().unwrap()
    }

    #[tokio::test]
    async fn server_serves_until_shutdown() {
        let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (leader_sender, leader) = watch::channel(false);
        let readiness: ReadinessCheck = Arc::new(move || {
            let is_leader = *leader.borrow();
            is_leader.then_some("ok").ok_or_else(|| "not the leader".to_owned())
        });
        let (stop, stopped) = watch::channel(false);
        let metrics = Arc::new(Metrics::new().unwrap());
        let server = tokio::spawn(serve(listener, metrics, readiness, stopped));

        assert!(get_path(address, "/healthz").await.starts_with("HTTP/1.1 200"));
        let standby = get_path(address, "/readyz").await;
        assert!(standby.starts_with("HTTP/1.1 503") && standby.ends_with("not the leader"));
        leader_sender.send(true).unwrap();
        assert!(get_path(address, "/readyz").await.starts_with("HTTP/1.1 200"));
        let text = get_path(address, "/metrics").await;
        assert!(text.contains("text/plain; version=0.0.4") && text.contains("workqueue_depth"));
        assert!(get_path(address, "/else").await.starts_with("HTTP/1.1 404"));

        stop.send(true).unwrap();
        server.await.unwrap().unwrap();
        assert!(TcpStream::connect(address).is_err());
    }
}
