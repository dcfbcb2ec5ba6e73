//! Clients: one that does what good clients do, and one that hangs up.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use axum::http::{HeaderMap, Request, StatusCode, header};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::account::Account;

/// A payment as a client means it: tried again, it is still the same.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) order: u64,
    pub(crate) key: String,
    pub(crate) amount: u64,
}

/// A response.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn is_replay(&self) -> bool {
        self.headers.get("idempotent-replayed").is_some_and(|value| value == "true")
    }

    /// When the server says that another try makes sense.
    fn retry_after(&self) -> Option<Duration> {
        let seconds = self.headers.get(header::RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
        Some(Duration::from_secs(seconds))
    }
}

/// Sends payments and enters the answers into the account.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    http: HttpClient<HttpConnector, Full<Bytes>>,
    account: Arc<Account>,
}

impl Client {
    pub(crate) fn new(account: &Arc<Account>) -> Self {
        Self { http: HttpClient::builder(TokioExecutor::new()).build_http(), account: account.clone() }
    }

    /// One try.
    pub(crate) async fn send(&self, replica: SocketAddr, wish: &Wish) -> anyhow::Result<Answer> {
        let request = Request::post(format!("http://{replica}/orders/{}/pay", wish.order))
            .header(header::CONTENT_TYPE, "application/json")
            .header("idempotency-key", &wish.key)
            .body(Full::from(body(wish)))?;
        self.account.sent(wish);
        let (head, body) = self.http.request(request).await.context("send a payment")?.into_parts();
        let body = body.collect().await.context("read an answer")?.to_bytes();
        let answer = Answer { status: head.status, headers: head.headers, body };
        self.account.answered(wish, &answer);
        Ok(answer)
    }

    /// Tries again for as long as the server says that it makes sense.
    pub(crate) async fn pay(&self, replica: SocketAddr, wish: &Wish) -> anyhow::Result<Answer> {
        for _ in 0..20 {
            let answer = self.send(replica, wish).await?;
            match answer.retry_after() {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Ok(answer),
            }
        }
        bail!("payment {} was put off 20 times", wish.key)
    }

    /// Sends a payment over a socket of its own; dropping the socket hangs up.
    pub(crate) async fn open(&self, replica: SocketAddr, wish: &Wish) -> anyhow::Result<TcpStream> {
        let body = body(wish);
        let request = format!(
            "POST /orders/{}/pay HTTP/1.1\r\nhost: {replica}\r\ncontent-type: application/json\r\n\
             idempotency-key: {}\r\ncontent-length: {}\r\n\r\n{body}",
            wish.order,
            wish.key,
            body.len(),
        );
        let mut socket = TcpStream::connect(replica).await.context("connect")?;
        self.account.sent(wish);
        socket.write_all(request.as_bytes()).await.context("send a payment")?;
        Ok(socket)
    }
}

fn body(wish: &Wish) -> String {
    format!("{{\"amount\": {}}}", wish.amount)
}
