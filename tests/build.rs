//! Writes the gRPC service of the suites. Its messages are in `src/shop.rs`, so nothing needs protoc.

use tonic_build::manual::{Builder, Method, MethodBuilder, Service};

fn main() {
    let method = |name: &str, route: &str| -> MethodBuilder {
        Method::builder()
            .name(name)
            .route_name(route)
            .input_type("crate::shop::Order")
            .output_type("crate::shop::Receipt")
            .codec_path("tonic_prost::ProstCodec")
    };
    let service = Service::builder()
        .package("shop")
        .name("Orders")
        .method(method("place", "Place").build())
        .method(method("watch", "Watch").server_streaming().build())
        .method(method("upload", "Upload").client_streaming().build())
        .method(method("talk", "Talk").client_streaming().server_streaming().build())
        .build();
    Builder::new().build_transport(false).compile(&[service]);
    println!("cargo::rerun-if-changed=build.rs");
}
