//! What the suites about the examples share: the requests that their curl lines ask for.

use bytes::Bytes;
use http::{HeaderName, Request};
use http_body_util::Full;

/// The request that a printed curl line makes.
pub(crate) fn request(curl: &str) -> Request<Full<Bytes>> {
    let words: Vec<&str> = curl.split('\'').flat_map(split_outside_of_quotes()).collect();
    let value = |flag: &str| words.iter().position(|word| *word == flag).map(|place| words[place + 1]);
    let url = words.iter().find(|word| word.starts_with("http://")).expect("a URL");
    let mut request = Request::post(*url);
    for pair in words.windows(2).filter(|pair| pair[0] == "-H") {
        let (name, text) = pair[1].split_once(": ").expect("a header");
        request = request.header(name.parse::<HeaderName>().unwrap(), text);
    }
    request.body(Full::from(value("-d").expect("a body").to_owned())).unwrap()
}

/// What stands between two quotes is one word; the rest is split at spaces.
fn split_outside_of_quotes<'a>() -> impl FnMut(&'a str) -> Vec<&'a str> {
    let mut quoted = true;
    move |piece| {
        quoted = !quoted;
        if quoted { vec![piece] } else { piece.split_whitespace().collect() }
    }
}
