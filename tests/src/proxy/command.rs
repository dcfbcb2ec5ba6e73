//! One request as a client sent it.

use std::fmt;

use bytes::Bytes;

/// A request: the command's name and its arguments.
#[derive(Clone, PartialEq, Eq)]
pub struct Command {
    args: Vec<Bytes>,
    user: Option<Bytes>,
}

impl Command {
    /// `args` begins with the name and isn't empty.
    pub(super) fn new(args: Vec<Bytes>) -> Self {
        debug_assert!(!args.is_empty());
        Self { args, user: None }
    }

    /// The same from a connection of this user.
    pub(super) fn by(self, user: Option<Bytes>) -> Self {
        Self { user, ..self }
    }

    /// Whether it came over a connection that had told this user's name.
    pub fn is_by(&self, user: &str) -> bool {
        self.user.as_deref() == Some(user.as_bytes())
    }

    /// The user whose name and password it tells, if it is a login by name.
    pub(super) fn login(&self) -> Option<Bytes> {
        let at = match &*self.name() {
            "AUTH" if self.args.len() == 3 => 0,
            "HELLO" => self.args.iter().position(|arg| arg.eq_ignore_ascii_case(b"AUTH"))?,
            _ => return None,
        };
        self.args.get(at + 1).cloned()
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
    fn a_login_tells_the_user() {
        let login = |line| command(line).login().map(|user| String::from_utf8(user.to_vec()).unwrap());
        assert_eq!(login("HELLO 3 AUTH me secret SETNAME x").as_deref(), Some("me"));
        assert_eq!(login("auth me secret").as_deref(), Some("me"));
        assert_eq!((login("AUTH secret"), login("HELLO 3"), login("GET AUTH")), (None, None, None));
        assert!(command("PING").by(Some("me".into())).is_by("me") && !command("PING").is_by("me"));
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
