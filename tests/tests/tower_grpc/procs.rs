//! Executors of calls in processes of their own, killed and stopped half-way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use distlock::records::CrashPolicy;
use distlock_tests::procs::Worker;
use distlock_tower::grpc::frame;
use distlock_tower::{AfterCrash, Recovered};
use prost::Message;
use tokio::task::JoinHandle;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::layer;
use crate::shop::{GrpcServer, OrdersClient, Raw, Receipt, Shop, keyed, order, raw};
use crate::tower_support::{LIMIT, Store};

/// Of those who are killed: others wait for so long.
const LEASE: Duration = Duration::from_millis(1_500);

/// Unary, and a stream whose first message has arrived when its executor is struck.
const METHODS: [&str; 2] = ["Place", "Watch"];

/// What a client of the executor got: whether it was marked as a replay, the messages, and the status if it is none of success.
type Answer = (bool, Vec<String>, Option<Status>);

/// An executor that runs the handler of a call, and that call.
struct Executor {
    worker: Worker,
    fence: u64,
    call: JoinHandle<Answer>,
}

impl Executor {
    async fn start(store: &Store, policy: &str, method: &'static str) -> Self {
        let args = [store.url(), policy.to_owned(), LEASE.as_millis().to_string()];
        let worker = Worker::spawn(env!("CARGO_BIN_EXE_grpc-worker"), args).unwrap();
        let listening = |line: &str| line.strip_prefix("listening ").map(str::to_owned);
        let address = worker.wait_line("its address", LIMIT, listening).await.unwrap();
        let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let call = tokio::spawn(answer(OrdersClient::new(channel), method, begun));
        let running = |line: &str| line.strip_prefix("running ")?.parse().ok();
        let fence = worker.wait_line("its handler", LIMIT, running).await.unwrap();
        if method == "Watch" {
            tokio::time::timeout(LIMIT, has_begun).await.expect("the first message").unwrap();
        }
        Self { worker, fence, call }
    }

    async fn answer(self) -> Answer {
        tokio::time::timeout(LIMIT, self.call).await.expect("an answer in time").unwrap()
    }

    /// Killed, and its client told of no success.
    async fn killed(self) {
        self.worker.kill().unwrap();
        let (_, messages, status) = self.answer().await;
        assert!(status.is_some(), "a success of a process that is dead: {messages:?}");
    }
}

async fn answer(mut client: OrdersClient, method: &str, begun: tokio::sync::oneshot::Sender<()>) -> Answer {
    let mut begun = Some(begun);
    let request = keyed("k", order("tea"));
    if method == "Place" {
        return match client.place(request).await {
            Ok(placed) => (crate::shop::is_replay(placed.metadata()), vec![placed.into_inner().text], None),
            Err(status) => (false, Vec::new(), Some(status)),
        };
    }
    let watched = match client.watch(request).await {
        Ok(watched) => watched,
        Err(status) => return (false, Vec::new(), Some(status)),
    };
    let replayed = crate::shop::is_replay(watched.metadata());
    let mut stream = watched.into_inner();
    let mut messages = Vec::new();
    loop {
        match stream.message().await {
            Ok(Some(message)) => messages.push(message.text),
            Ok(None) => return (replayed, messages, None),
            Err(status) => return (replayed, messages, Some(status)),
        }
        if let Some(begun) = begun.take() {
            let _ = begun.send(());
        }
    }
}

async fn survivor(store: &Store, policy: impl Into<AfterCrash>) -> (GrpcServer, Shop) {
    let shop = Shop::new();
    let settings = layer(&store.manager().await).lease(4 * LEASE).after_crash(policy);
    (GrpcServer::start(settings.build().unwrap(), &shop).await, shop)
}

/// Ten at once under the key, without what belongs to one exchange; and how many were marked as replays.
async fn ten(server: &GrpcServer, method: &'static str) -> (Vec<Raw>, usize) {
    let channel = server.channel().await;
    let sent: Vec<_> = (0..10)
        .map(|_| {
            let channel = channel.clone();
            tokio::spawn(async move { raw(&channel, method, "k", &order("tea")).await.unwrap() })
        })
        .collect();
    let (mut answers, mut replays) = (Vec::new(), 0);
    for call in sent {
        let (answer, replayed) = tokio::time::timeout(LIMIT, call).await.expect("in time").unwrap().lasting();
        replays += usize::from(replayed);
        answers.push(answer);
    }
    (answers, replays)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn procs_after_a_kill_no_call_runs_again_by_default() {
    for method in METHODS {
        let store = Store::redis();
        let (server, shop) = survivor(&store, CrashPolicy::Reject).await;
        Executor::start(&store, "reject", method).await.killed().await;
        for _ in 0..2 {
            let (answers, replays) = ten(&server, method).await;
            for answer in answers {
                let told = Status::from_header_map(&answer.headers).expect("headers alone");
                assert_eq!(told.code(), Code::FailedPrecondition, "{method}");
                assert_eq!(told.get_error_details().error_info().unwrap().reason, "OUTCOME_UNKNOWN");
            }
            assert_eq!(replays, 0);
        }
        assert_eq!(shop.runs(), 0, "{method}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn procs_after_a_kill_one_call_takes_over_by_choice() {
    for method in METHODS {
        let store = Store::redis();
        let (server, shop) = survivor(&store, CrashPolicy::Takeover).await;
        let executor = Executor::start(&store, "takeover", method).await;
        let fence = executor.fence;
        executor.killed().await;
        let (answers, replays) = ten(&server, method).await;
        assert_eq!((shop.runs(), replays), (1, 9), "{method}");
        assert_eq!(answers[0].code(), Some("0"), "{method}: {:?}", answers[0]);
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{method}: {answers:?}");
        if method == "Place" {
            let heir = shop.seen.borrow().clone().expect("it has a key");
            assert!(heir.is_takeover() && heir.fence().get() > fence, "{heir:?} after {fence}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn procs_after_a_kill_the_recovery_of_a_call_is_asked_by_choice() {
    for method in METHODS {
        let store = Store::redis();
        let asked = Arc::new(AtomicUsize::new(0));
        let recovery = AfterCrash::recover({
            let asked = asked.clone();
            move |_| {
                asked.fetch_add(1, Ordering::SeqCst);
                let receipt = Receipt { text: "from the books".to_owned() };
                let message = frame(&receipt.encode_to_vec());
                async { Recovered::Finished(http::Response::new(message)) }
            }
        });
        let (server, shop) = survivor(&store, recovery).await;
        Executor::start(&store, "takeover", method).await.killed().await;
        let (answers, replays) = ten(&server, method).await;
        assert_eq!((shop.runs(), asked.load(Ordering::SeqCst), replays), (0, 1, 9), "{method}");
        for answer in answers {
            let trailers = answer.trailers.as_ref().expect("a status after the message");
            assert_eq!(trailers["grpc-status"], "0");
            assert_eq!(answer.headers["content-type"], "application/grpc");
            let receipt = Receipt::decode(answer.data.slice(5..)).unwrap();
            assert_eq!(receipt.text, "from the books");
        }
        let mut client = server.client().await;
        if method == "Place" {
            let placed = client.place(keyed("k", order("tea"))).await.unwrap();
            assert_eq!(placed.get_ref().text, "from the books");
        }
    }
}

/// A recovery that found out that the call was refused says so by a status alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn procs_after_a_kill_a_recovery_may_find_an_error() {
    let store = Store::redis();
    let recovery = AfterCrash::recover(|_| async {
        Recovered::Finished(Status::not_found("no such order").into_http::<Bytes>())
    });
    let (server, shop) = survivor(&store, recovery).await;
    Executor::start(&store, "takeover", "Place").await.killed().await;
    let mut client = server.client().await;
    for _ in 0..2 {
        let told = client.place(keyed("k", order("tea"))).await.unwrap_err();
        assert_eq!((told.code(), told.message()), (Code::NotFound, "no such order"));
    }
    assert_eq!(shop.runs(), 0);
}

/// The executor is stopped for longer than its lease and replaced. When it goes on, its response is refused by the store: its client gets
/// the one that counts, or where its stream had begun, an end that is no success. There are never two completed records.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn procs_a_stopped_executor_of_a_call_never_completes_a_second_record() {
    for method in METHODS {
        let store = Store::redis();
        let (server, shop) = survivor(&store, CrashPolicy::Takeover).await;
        let executor = Executor::start(&store, "takeover", method).await;
        executor.worker.pause().unwrap();
        let channel = server.channel().await;
        let counts = raw(&channel, method, "k", &order("tea")).await.unwrap().lasting();
        assert_eq!((counts.0.code(), counts.1), (Some("0"), false), "{method}");
        executor.worker.resume().unwrap();
        executor.worker.wait_line("its loss", LIMIT, |line| (line == "lost").then_some(())).await.unwrap();
        executor.worker.send("go on").unwrap();
        let (replayed, messages, status) = executor.answer().await;
        match method {
            "Place" => {
                let text = Receipt::decode(counts.0.data.slice(5..)).unwrap().text;
                assert_eq!(
                    (replayed, messages, status.map(|status| status.code())),
                    (true, vec![text], None)
                );
            }
            _ => assert_eq!(status.expect("no success").code(), Code::Aborted),
        }
        let replay = raw(&channel, method, "k", &order("tea")).await.unwrap().lasting();
        assert_eq!((replay, shop.runs()), ((counts.0, true), 1), "{method}");
    }
}
