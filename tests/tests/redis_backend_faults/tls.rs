//! Certificates.

use std::{path::Path, sync::Arc};

use distlock_runtime::{
    Clock,
    backend::{
        Backend, BackendErrorKind,
        redis::{RedisBackend, RedisOptions},
    },
};
use distlock_tests::server::{ClientCerts, RedisOptions as ServerOptions, RedisServer};

use super::everything;
use super::redis_backend::{self, *};

#[tokio::test]
async fn tls_is_verified_both_ways() {
    for certs in [ClientCerts::Ignored, ClientCerts::Required] {
        let server = RedisServer::start(ServerOptions::new().tls(certs)).unwrap();
        let files = server.tls().unwrap();
        let options = RedisOptions::from_url(&server.url()).unwrap();
        let options = options.ca(&files.ca).client_certificate(&files.client_cert, &files.client_key);
        let backend = RedisBackend::open(&options, Clock::System).unwrap();
        let bench = Bench { admin: server.admin().await.unwrap(), backend: Arc::clone(&backend), server };
        everything(&bench, &backend).await;
        let files = bench.server.tls().unwrap();
        let url = format!(
            "{}?ca={}&cert={}&key={}",
            bench.server.url(),
            files.ca.display(),
            files.client_cert.display(),
            files.client_key.display()
        );
        redis_backend::open(&url).ping().await.unwrap();

        let open = |ca: Option<&Path>, certificate: bool| {
            let mut options = RedisOptions::from_url(&bench.server.url()).unwrap();
            if let Some(ca) = ca {
                options = options.ca(ca);
            }
            if certificate {
                options = options.client_certificate(&files.client_cert, &files.client_key);
            }
            RedisBackend::open(&options, Clock::System).unwrap()
        };
        for ca in [None, Some(files.wrong_ca.as_path())] {
            let error = open(ca, true).ping().await.unwrap_err();
            assert_eq!(error.kind(), BackendErrorKind::Config, "{error}");
            assert!(error.to_string().contains("certificate"), "{error}");
        }
        let without = open(Some(&files.ca), false).ping().await;
        match certs {
            ClientCerts::Ignored => without.unwrap(),
            ClientCerts::Required => assert_eq!(without.unwrap_err().kind(), BackendErrorKind::Config),
        }
        let plain = format!("redis://{}", bench.server.address());
        redis_backend::open(&plain).ping().await.unwrap_err();
    }
}
