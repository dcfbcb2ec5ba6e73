//! Which methods take a stream of requests.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use super::wire::{self, Value};

/// The methods whose requests are streams (client streaming and both ways), by path: `/package.Service/Method`.
///
/// Such a request can't be read ahead, and there is no saying that one is a repeat of another. Nothing in a call tells it from a
/// unary one, so the layer has to be told. From the service's descriptors, which know it:
///
/// ```
/// # fn demo(descriptors: &[u8]) -> Result<(), distlock_tower::grpc::InvalidDescriptors> {
/// # mod distlock { pub use distlock_tower as tower; }
/// use distlock::tower::grpc::RequestStreams;
/// // tonic::include_file_descriptor_set!("orders")
/// let streams = RequestStreams::of_descriptors(descriptors)?;
/// # Ok(()) }
/// ```
///
/// or by hand: `["/orders.Orders/Upload"].into()`.
#[derive(Clone, Default)]
pub struct RequestStreams {
    paths: Arc<HashSet<String>>,
}

/// The bytes aren't a `google.protobuf.FileDescriptorSet`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InvalidDescriptors;

impl RequestStreams {
    /// Those of all services in an encoded `google.protobuf.FileDescriptorSet`, as protoc and prost write it.
    ///
    /// # Errors
    /// [`InvalidDescriptors`] if it can't be read.
    pub fn of_descriptors(set: &[u8]) -> Result<Self, InvalidDescriptors> {
        let mut paths = HashSet::new();
        for file in all(set, 1)? {
            let package = first_text(file, 2)?.unwrap_or_default();
            for service in all(file, 6)? {
                let name = first_text(service, 1)?.ok_or(InvalidDescriptors)?;
                let dot = if package.is_empty() { "" } else { "." };
                for method in all(service, 2)? {
                    let takes_stream = number(method, 5)? != 0;
                    let method = first_text(method, 1)?.ok_or(InvalidDescriptors)?;
                    if takes_stream {
                        paths.insert(format!("/{package}{dot}{name}/{method}"));
                    }
                }
            }
        }
        Ok(Self { paths: Arc::new(paths) })
    }

    pub(crate) fn contains(&self, path: &str) -> bool {
        self.paths.contains(path)
    }
}

impl<P: Into<String>, const N: usize> From<[P; N]> for RequestStreams {
    fn from(paths: [P; N]) -> Self {
        paths.into_iter().collect()
    }
}

impl<P: Into<String>> FromIterator<P> for RequestStreams {
    fn from_iter<I: IntoIterator<Item = P>>(paths: I) -> Self {
        Self { paths: Arc::new(paths.into_iter().map(Into::into).collect()) }
    }
}

impl fmt::Debug for RequestStreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.paths.iter()).finish()
    }
}

impl fmt::Display for InvalidDescriptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the bytes are no encoded file descriptor set")
    }
}

impl std::error::Error for InvalidDescriptors {}

fn all(message: &[u8], number: u64) -> Result<Vec<&[u8]>, InvalidDescriptors> {
    let mut found = Vec::new();
    for field in wire::fields(message) {
        match field.ok_or(InvalidDescriptors)? {
            (at, Value::Bytes(bytes)) if at == number => found.push(bytes),
            _ => {}
        }
    }
    Ok(found)
}

fn first_text(message: &[u8], number: u64) -> Result<Option<&str>, InvalidDescriptors> {
    let texts = all(message, number)?;
    texts.last().map(|text| std::str::from_utf8(text).map_err(|_| InvalidDescriptors)).transpose()
}

fn number(message: &[u8], number: u64) -> Result<u64, InvalidDescriptors> {
    let mut last = 0;
    for field in wire::fields(message) {
        match field.ok_or(InvalidDescriptors)? {
            (at, Value::Number(value)) if at == number => last = value,
            _ => {}
        }
    }
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::wire::{put_bytes, put_number};

    fn method(name: &str, client_streams: u64, server_streams: u64) -> Vec<u8> {
        let mut method = Vec::new();
        put_bytes(&mut method, 1, name.as_bytes());
        put_bytes(&mut method, 2, b".orders.Order");
        put_bytes(&mut method, 3, b".orders.Receipt");
        put_number(&mut method, 5, client_streams);
        put_number(&mut method, 6, server_streams);
        method
    }

    fn set(package: &str) -> Vec<u8> {
        let mut service = Vec::new();
        put_bytes(&mut service, 1, b"Orders");
        for method in
            [method("Place", 0, 0), method("Watch", 0, 1), method("Upload", 1, 0), method("Talk", 1, 1)]
        {
            put_bytes(&mut service, 2, &method);
        }
        let mut file = Vec::new();
        put_bytes(&mut file, 1, b"orders.proto");
        put_bytes(&mut file, 2, package.as_bytes());
        put_bytes(&mut file, 6, &service);
        let mut set = Vec::new();
        put_bytes(&mut set, 1, &file);
        set
    }

    #[test]
    fn descriptors_say_which_methods_take_streams() {
        let streams = RequestStreams::of_descriptors(&set("shop.orders")).unwrap();
        assert_eq!(streams.paths.len(), 2);
        for (path, takes) in [("Place", false), ("Watch", false), ("Upload", true), ("Talk", true)] {
            assert_eq!(streams.contains(&format!("/shop.orders.Orders/{path}")), takes, "{path}");
        }
        assert!(RequestStreams::of_descriptors(&set("")).unwrap().contains("/Orders/Upload"));
    }

    #[test]
    fn what_is_cut_off_is_no_descriptor() {
        let whole = set("orders");
        assert_eq!(
            RequestStreams::of_descriptors(&whole[..whole.len() - 1]).unwrap_err(),
            InvalidDescriptors
        );
        assert!(RequestStreams::from(["/a.B/C"]).contains("/a.B/C"));
    }
}
