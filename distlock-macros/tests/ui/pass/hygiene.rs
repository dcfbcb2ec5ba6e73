//! The expansion needs nothing from where it lands: no prelude, no `std` names, no unsafe block of its own.
#![deny(warnings, unused_qualifications, let_underscore_drop, trivial_casts, unused_lifetimes)]

mod bare {
    #![no_implicit_prelude]

    use ::distlock::{LockError, distributed_lock, idempotent};
    use ::std::prelude::rust_2024::{Ok, Result};

    pub struct Service {
        pub tenant: u64,
    }

    fn key() -> &'static str {
        "key"
    }

    impl Service {
        #[distributed_lock(key = "order:<self.tenant>:<id>", ttl = "5s", wait = "none", reentrant, on_lost = signal)]
        pub async fn result(&self, id: u64) -> Result<u64, LockError> {
            Ok(id)
        }

        #[distributed_lock(key = "order:<id>", on_busy = skip, on_error = ())]
        pub async fn skipped(&self, id: u64) {
            let _ = id;
        }

        #[distributed_lock(key = "order:<id>", on_busy = 1, on_error = |_| 2, guard = hold)]
        pub async fn answered(&self, id: u64) -> u64 {
            if hold.is_valid() { id } else { 0 }
        }

        #[distributed_lock(keys = ["order:<self.tenant>:<id>", key(), "stock"], reentrant)]
        pub async fn several(&self, id: u64) -> Result<u64, LockError> {
            ::distlock::assert_held!("order:<self.tenant>:<id>");
            ::distlock::assert_held!(key());
            Ok(id)
        }

        #[distributed_lock(keys = ids)]
        pub async fn each(&self, ids: [&str; 2]) -> Result<(), LockError> {
            Ok(())
        }

        #[idempotent(key = "order:<self.tenant>:<id>", retain = "1h", wait = "none", after_crash = takeover)]
        pub async fn once(&self, id: u64, _arguments: &str) -> Result<u64, LockError> {
            Ok(id)
        }

        #[idempotent(key = key(), fingerprint = id, on_failure = store, on_cancel = release, on_error = |_| Ok(2), guard = claim)]
        pub async fn once_with_errors(&self, id: u64, fence: u64) -> Result<u64, u8> {
            if claim.fencing_token().get() > fence { Ok(id) } else { ::std::result::Result::Err(1) }
        }

        #[idempotent(key = "order:<id>", on_busy = skip, result_limit = { 1 << 10 }, lease = "5s")]
        pub async fn once_or_skipped(&self, id: u64) -> Result<(), LockError> {
            Ok(())
        }

        #[distributed_lock(key = "order:<id>", fair)]
        pub async fn fair(&self, id: u64) -> Result<u64, LockError> {
            Ok(id)
        }

        #[distributed_lock(key = "order:<id>", read)]
        pub async fn read(&self, id: u64) -> Result<u64, LockError> {
            Ok(id)
        }

        #[distributed_lock(key = "order:<id>", write)]
        pub async fn write(&self, id: u64) -> Result<u64, LockError> {
            Ok(id)
        }

        #[distributed_lock(key = "order:<id>", permits = limit, weight = { limit - 1 })]
        pub async fn permits(&self, id: u64, limit: u32) -> Result<u64, LockError> {
            Ok(id)
        }
    }
}

#[distlock::distributed_lock(key = "order:<id>")]
async unsafe fn needs_care(id: u64, pointer: *const u64) -> Result<u64, distlock::LockError> {
    // SAFETY: none is needed, nobody polls it.
    Ok(id + unsafe { *pointer })
}

fn main() {
    let service = bare::Service { tenant: 1 };
    drop((service.result(1), service.skipped(1), service.answered(1)));
    drop((service.several(1), service.each(["a", "b"]), service.fair(1), service.read(1), service.write(1)));
    drop(service.permits(1, 2));
    // SAFETY: the future is dropped at once.
    drop(unsafe { needs_care(1, &2) });
}
