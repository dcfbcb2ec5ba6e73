//! Writes client and server of the `grpc_orders` example. The service is described here in place of a `.proto` file, so that the examples
//! build without protoc; in a project with one, `tonic_prost_build::compile_protos` does the same.

use tonic_build::manual::{Builder, Method, MethodBuilder, Service};

fn main() {
    let method = |name: &str, route: &str| -> MethodBuilder {
        Method::builder()
            .name(name)
            .route_name(route)
            .input_type("crate::messages::Order")
            .output_type("crate::messages::Receipt")
            .codec_path("tonic_prost::ProstCodec")
    };
    let service = Service::builder()
        .package("shop")
        .name("Orders")
        .method(method("place", "Place").build())
        .method(method("follow", "Follow").server_streaming().build())
        .method(method("import", "Import").client_streaming().build())
        .build();
    Builder::new().build_transport(false).compile(&[service]);
    println!("cargo::rerun-if-changed=build.rs");
}
