//! Each bad argument is one error at its own place.
use distlock::{LockError, distributed_lock};

#[distributed_lock]
async fn no_arguments() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(ttl = "30s")]
async fn no_key() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock("order")]
async fn unnamed_key() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = 42)]
async fn number_as_key() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order", tll = "30s")]
async fn misspelt() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order", colour = "red")]
async fn unknown() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order", ttl = "30s", key = "other", reentrant, reentrant)]
async fn doubled() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order", reentrant = true)]
async fn flag_with_a_value() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order", fair = true)]
async fn other_flag_with_a_value() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order", ttl, wait = )]
async fn values_missing() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order" reentrant)]
async fn comma_missing() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order", on_lost = "cancel")]
async fn quoted_policy() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order", on_lost = panic)]
async fn unknown_policy() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order", on_busy = "skip")]
async fn quoted_skip() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order", guard = "guard")]
async fn quoted_guard() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order", guard = self)]
async fn guard_called_self() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order:<id>", guard = id)]
async fn guard_called_like_an_argument(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order", crate = "distlock")]
async fn quoted_crate() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order:<oder>", ttl = "1ms", wiat = "5s")]
async fn several(order: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = ["a", "b"])]
async fn several_as_key() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order", timeout = "5s", lease = "30s")]
async fn called_otherwise_elsewhere() -> Result<(), LockError> {
    Ok(())
}

fn main() {
    // The functions are all there: nothing but the mistakes themselves is reported.
    let _ = (no_arguments(), no_key(), unnamed_key(), number_as_key(), misspelt(), unknown(), doubled(), several(1));
}
