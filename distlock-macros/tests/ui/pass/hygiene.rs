//! The expansion needs nothing from where it lands: no prelude, no `std` names, no unsafe block of its own.
#![deny(warnings, unused_qualifications, let_underscore_drop, trivial_casts, unused_lifetimes)]

mod bare {
    #![no_implicit_prelude]

    use ::distlock::{LockError, distributed_lock};
    use ::std::prelude::rust_2024::{Ok, Result};

    pub struct Service {
        pub tenant: u64,
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
    // SAFETY: the future is dropped at once.
    drop(unsafe { needs_care(1, &2) });
}
