//! The client: a key for each payment, and retries that keep it. The line in between loses answers.

use std::net::SocketAddr;
use std::time::Duration;

use axum::http::{HeaderMap, Request, StatusCode, header};
use bytes::Bytes;
use distlock::tower::IdempotencyKey;
use distlock::tower::client::{ClientLayer, ClientService, RepeatableBody, RetryPolicy};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt, copy, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tower::{Layer, ServiceExt};

type Http = HttpClient<HttpConnector, RepeatableBody<Full<Bytes>>>;

#[derive(Clone, Debug)]
pub(crate) struct Client {
    http: ClientService<Http>,
    server: SocketAddr,
}

#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn is_replay(&self) -> bool {
        self.headers.contains_key("idempotent-replayed")
    }
}

impl Client {
    pub(crate) fn new(server: SocketAddr) -> Self {
        // A connection for each try: what a pool would hide is what this is about.
        let http: Http = HttpClient::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http();
        let retries = RetryPolicy::new().backoff(Duration::from_millis(50), Duration::from_secs(1));
        Self { http: ClientLayer::new().retries(retries).layer(http), server }
    }

    /// One payment, tried until there is an answer. Its key is minted here, or is the one that was kept with the order.
    pub(crate) async fn pay(
        &self,
        user: &str,
        amount: u64,
        kept: Option<&IdempotencyKey>,
    ) -> anyhow::Result<Answer> {
        let mut request = Request::post(format!("http://{}/payments", self.server))
            .header(header::AUTHORIZATION, format!("Bearer {user}"))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::from(format!("{{\"amount\": {amount}}}")))?;
        if let Some(key) = kept {
            request.extensions_mut().insert(key.clone());
        }
        let (head, body) = self.http.clone().oneshot(request).await?.into_parts();
        Ok(Answer { status: head.status, headers: head.headers, body: body.collect().await?.to_bytes() })
    }
}

/// A line to the server on which this many answers are lost: it breaks as soon as one begins.
pub(crate) async fn bad_line(server: SocketAddr, mut losses: usize) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let line = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let breaks = losses > 0;
            losses = losses.saturating_sub(1);
            tokio::spawn(carry(client, server, breaks));
        }
    });
    Ok(line)
}

async fn carry(mut client: TcpStream, server: SocketAddr, breaks: bool) -> std::io::Result<()> {
    let mut server = TcpStream::connect(server).await?;
    if !breaks {
        return copy_bidirectional(&mut client, &mut server).await.map(drop);
    }
    let ((mut question, _), (mut answer, mut to)) = (client.split(), server.split());
    tokio::select! {
        asked = copy(&mut question, &mut to) => asked.map(drop),
        begun = answer.read_u8() => begun.map(drop),
    }
}
