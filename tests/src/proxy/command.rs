//! One request as a client sent it.

use std::fmt;

use bytes::Bytes;

/// A request: the command's name and its arguments.
#[derive(Clone, PartialEq, Eq)]
pub struct Command {
    args: Vec<Bytes>,
}

impl Command {
    /// `args` begins with the name and isn't empty.
    pub(super) fn new(args: Vec<Bytes>) -> Self {
        debug_assert!(!args.is_empty());
        Self { args }
    }

    /// The command's name in upper case, like `EVALSHA`.
    pub fn name(&self) -> String {
        String::from_utf8_lossy(&self.args[0]).to_ascii_uppercase()
    }

    /// Whether the command has this name, in whatever case.
    pub fn is(&self, name: &str) -> bool {
        self.args[0].eq_ignore_ascii_case(name.as_bytes())
    }

    /// The name and all arguments.
    pub fn args(&self) -> &[Bytes] {
        &self.args
    }

    /// The argument at `index`, the name being 0; empty if there is none. Shown lossily if it isn't UTF-8.
    pub fn arg(&self, index: usize) -> String {
        self.args.get(index).map_or_else(String::new, |arg| String::from_utf8_lossy(arg).into_owned())
    }

    /// The digest of an `EVALSHA`, else `None`.
    pub fn script_sha(&self) -> Option<String> {
        self.is("EVALSHA").then(|| self.arg(1))
    }

    /// The keys of a script call, else the first argument.
    pub fn keys(&self) -> Vec<String> {
        let is_call = ["EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO", "FCALL"].iter().any(|name| self.is(name));
        let range = if is_call { 3..3 + self.arg(2).parse().unwrap_or(0) } else { 1..2 };
        range.filter(|&index| index < self.args.len()).map(|index| self.arg(index)).collect()
    }

    /// Whether some argument contains `text`.
    pub fn mentions(&self, text: &str) -> bool {
        self.args[1..].iter().any(|arg| contains(arg, text.as_bytes()))
    }

    /// What clients send when they connect, before any work: `HELLO`, `AUTH`, `CLIENT`, `SELECT`.
    pub fn is_handshake(&self) -> bool {
        ["HELLO", "AUTH", "CLIENT", "SELECT"].iter().any(|name| self.is(name))
    }

    /// How many confirmations the server sends for it; `None` for anything but a (un)subscription.
    pub(super) fn confirmations(&self) -> Option<usize> {
        let names = ["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE"];
        names.iter().any(|name| self.is(name)).then(|| (self.args.len() - 1).max(1))
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let args: Vec<String> = (0..self.args.len()).map(|index| self.arg(index)).collect();
        write!(f, "{}", args.join(" ").escape_debug())
    }
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    needle.is_empty() || haystack.windows(needle.len()).any(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(line: &str) -> Command {
        Command::new(line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect())
    }

    #[test]
    fn keys_of_scripts_and_of_others() {
        assert_eq!(command("evalsha abc 2 k1 k2 v").keys(), ["k1", "k2"]);
        assert_eq!(command("evalsha abc 9 k1").keys(), ["k1"]);
        assert_eq!(command("SET k v").keys(), ["k"]);
        assert_eq!(command("PING").keys(), Vec::<String>::new());
    }

    #[test]
    fn finds_text_in_arguments_only() {
        let set = command("SET lock:order:42 v");
        assert!(set.mentions("order") && !set.mentions("SET") && !set.mentions("lock:order:42 v"));
        assert_eq!(set.confirmations(), None);
        assert_eq!(command("UNSUBSCRIBE").confirmations(), Some(1));
        assert_eq!(command("subscribe a b").confirmations(), Some(2));
    }
}
