//! The server-side scripts. Their contracts stand at the head of each `.lua` file and in `docs/wire.md`.

use std::sync::OnceLock;

use redis::Cmd;

/// A script that lives in the binary and is called by its hash.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) name: &'static str,
    text: &'static str,
    hash: OnceLock<String>,
}

impl Script {
    const fn new(name: &'static str, text: &'static str) -> Self {
        Self { name, text, hash: OnceLock::new() }
    }

    /// The start of a call: `EVALSHA hash keys`, with room for what follows.
    pub(super) fn call(&self, keys: usize, arguments: usize, bytes: usize) -> Cmd {
        let mut command = Cmd::with_capacity(3 + keys + arguments, 64 + bytes);
        command.arg("EVALSHA").arg(self.hash()).arg(keys);
        command
    }

    /// Makes the server know the script.
    pub(super) fn load(&self) -> Cmd {
        let mut command = redis::cmd("SCRIPT");
        command.arg("LOAD").arg(self.text);
        command
    }

    fn hash(&self) -> &str {
        self.hash.get_or_init(|| redis::Script::new(self.text).get_hash().to_owned())
    }
}

/// A script that draws fencing tokens, in both ways of doing so.
#[derive(Debug)]
pub(super) struct Drawing {
    /// By counting on: one server, whose counter is the last word.
    counting: Script,
    /// Above the clock's floor each time: the counter may be that of a replica that has taken over.
    ahead: Script,
}

impl Drawing {
    pub(super) fn script(&self, ahead: bool) -> &Script {
        if ahead { &self.ahead } else { &self.counting }
    }
}

/// A script made of these files, put together when the crate is compiled.
macro_rules! script {
    ($name:literal: $($file:literal),+) => {
        Script::new($name, concat!($(include_str!(concat!("lua/", $file, ".lua"))),+))
    };
}

/// The same behind the function that draws.
macro_rules! drawing {
    ($name:literal: $($file:literal),+) => {
        Drawing { counting: script!($name: "draw", $($file),+), ahead: script!($name: "draw_ahead", $($file),+) }
    };
}

pub(super) static ACQUIRE: Drawing = drawing!("acquire": "take", "acquire");
pub(super) static ACQUIRE_ALL: Drawing = drawing!("acquire_all": "acquire_all");
pub(super) static CANCEL: Script = script!("cancel": "publish", "line", "queue", "hand_on", "bury", "cancel");
pub(super) static ENTER: Drawing = drawing!("enter": "take", "publish", "line", "queue", "enqueue", "enter");
pub(super) static FAIR: Drawing = drawing!("fair": "publish", "line", "queue", "hand_on", "enqueue", "fair");
pub(super) static FORCE_RELEASE: Script =
    script!("force_release": "publish", "line", "queue", "hand_on", "force_release");
pub(super) static INSPECT: Script = script!("inspect": "queue", "inspect");
pub(super) static LATCH_COUNT_DOWN: Script =
    script!("latch_count_down": "publish", "latch", "latch_count_down");
pub(super) static LATCH_LOOK: Script = script!("latch_look": "latch", "latch_look");
pub(super) static RAISE: Script = script!("raise": "raise");
pub(super) static RELEASE: Script =
    script!("release": "release", "publish", "line", "queue", "hand_on", "released");
pub(super) static RENEW: Script = script!("renew": "renew");
pub(super) static SHARE_ACQUIRE: Drawing =
    drawing!("share_acquire": "carry", "publish", "line", "queue", "share", "share_acquire");
pub(super) static SHARE_CANCEL: Script =
    script!("share_cancel": "publish", "line", "queue", "share", "bury", "share_cancel");
pub(super) static SHARE_CONVERT: Drawing =
    drawing!("share_convert": "carry", "publish", "line", "queue", "share", "share_convert");
pub(super) static SHARE_FORCE_RELEASE: Script =
    script!("share_force_release": "publish", "line", "queue", "share", "share_force_release");
pub(super) static SHARE_INSPECT: Script =
    script!("share_inspect": "publish", "line", "queue", "share", "share_inspect");
pub(super) static SHARE_RELEASE: Script =
    script!("share_release": "publish", "line", "queue", "share", "share_release");
pub(super) static SHARE_RENEW: Script = script!("share_renew": "queue", "share_renew");
pub(super) static SHARE_RESIZE: Script =
    script!("share_resize": "publish", "line", "queue", "share", "share_resize");
pub(super) static WAIT_HOLDERS: Script = script!("wait_holders": "queue", "wait_holders");
pub(super) static WAIT_PUBLISH: Script = script!("wait_publish": "queue", "wait_publish");
pub(super) static QUOTA_CHARGE: Script =
    script!("quota_charge": "publish", "record", "quota", "quota_charge");
pub(super) static QUOTA_RESERVE: Script =
    script!("quota_reserve": "publish", "record", "quota", "quota_reserve");
pub(super) static RECORD_CLAIM: Drawing = drawing!("record_claim": "publish", "record", "record_claim");
pub(super) static RECORD_LIST: Script = script!("record_list": "publish", "record", "record_list");
pub(super) static RECORD_LOOK_UP: Script = script!("record_look_up": "publish", "record", "record_look_up");
pub(super) static RECORD_RENEW: Script = script!("record_renew": "publish", "record", "record_renew");
pub(super) static RECORD_PURGE: Script = script!("record_purge": "publish", "record", "record_purge");
pub(super) static RECORD_RESOLVE: Script = script!("record_resolve": "publish", "record", "record_resolve");
pub(super) static RECORD_SETTLE: Script = script!("record_settle": "publish", "record", "record_settle");
pub(super) static RECORD_WITHDRAW: Script =
    script!("record_withdraw": "publish", "record", "record_withdraw");
