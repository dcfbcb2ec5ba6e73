//! Status codes.

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        /// A gRPC status code.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(clippy::exhaustive_enums, reason = "the protocol's list is closed")]
        pub enum Code { $($(#[$doc])* $name = $number,)* }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The code's name in the protocol, `UNAVAILABLE` for instance.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

codes! {
    /// It succeeded.
    Ok = 0, "OK";
    /// The caller gave it up.
    Cancelled = 1, "CANCELLED";
    /// Nobody knows, or a code that isn't known.
    Unknown = 2, "UNKNOWN";
    /// The request is wrong whatever the state of things.
    InvalidArgument = 3, "INVALID_ARGUMENT";
    /// The time was over first.
    DeadlineExceeded = 4, "DEADLINE_EXCEEDED";
    /// It isn't there.
    NotFound = 5, "NOT_FOUND";
    /// It is there already.
    AlreadyExists = 6, "ALREADY_EXISTS";
    /// The caller may not.
    PermissionDenied = 7, "PERMISSION_DENIED";
    /// A quota, or something else, is used up.
    ResourceExhausted = 8, "RESOURCE_EXHAUSTED";
    /// The state of things is in the way, and stays until somebody changes it.
    FailedPrecondition = 9, "FAILED_PRECONDITION";
    /// Others were in the way.
    Aborted = 10, "ABORTED";
    /// Beyond the valid range.
    OutOfRange = 11, "OUT_OF_RANGE";
    /// There is no such operation here.
    Unimplemented = 12, "UNIMPLEMENTED";
    /// Something broke.
    Internal = 13, "INTERNAL";
    /// It can't be done at the moment.
    Unavailable = 14, "UNAVAILABLE";
    /// Data is lost or damaged.
    DataLoss = 15, "DATA_LOSS";
    /// The caller isn't known.
    Unauthenticated = 16, "UNAUTHENTICATED";
}

impl Code {
    /// The code with this number; a number without one is [`Unknown`](Self::Unknown), as the protocol says.
    #[must_use]
    pub fn from_number(number: u32) -> Self {
        usize::try_from(number)
            .ok()
            .and_then(|number| Self::ALL.get(number))
            .copied()
            .unwrap_or(Self::Unknown)
    }

    /// The code's number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self as u32
    }

    pub(crate) fn parse(text: &[u8]) -> Self {
        std::str::from_utf8(text)
            .ok()
            .and_then(|text| text.parse().ok())
            .map_or(Self::Unknown, Self::from_number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_codes_are_one_to_one() {
        for (number, code) in (0..).zip(Code::ALL) {
            assert_eq!((code.number(), Code::from_number(number)), (number, *code));
            assert_eq!(Code::parse(number.to_string().as_bytes()), *code);
        }
        for text in ["17", "-1", "", "ok", "99999999999"] {
            assert_eq!(Code::parse(text.as_bytes()), Code::Unknown, "{text}");
        }
    }
}
