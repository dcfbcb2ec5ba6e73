//! A lock failure must have somewhere to go.
use distlock::{LockError, distributed_lock};

#[derive(Debug)]
struct AppError;

struct Receipt;

#[distributed_lock(key = "order")]
async fn nothing() {}

#[distributed_lock(key = "order")]
async fn text() -> String {
    String::new()
}

#[distributed_lock(key = "order")]
async fn option() -> Option<u64> {
    None
}

#[distributed_lock(key = "order")]
async fn error_without_from() -> Result<Receipt, AppError> {
    Ok(Receipt)
}

#[distributed_lock(key = "order", on_busy = 0)]
async fn busy_alone_is_not_enough() -> u64 {
    1
}

#[distributed_lock(key = "order", on_busy = skip, on_error = 0)]
async fn skip_needs_a_default() -> u64 {
    1
}

#[distributed_lock(key = "order", on_busy = skip)]
async fn skip_needs_a_default_inside() -> Result<Receipt, LockError> {
    Ok(Receipt)
}

#[distributed_lock(key = "order", on_busy = 1)]
async fn busy_value_of_another_type() -> Result<String, LockError> {
    Ok(String::new())
}

#[distributed_lock(key = "order", on_error = |error| error)]
async fn error_closure_of_another_type() -> u64 {
    1
}

fn handler(error: LockError) -> String {
    error.to_string()
}

#[distributed_lock(key = "order", on_error = handler)]
async fn error_function_of_another_type() -> u64 {
    1
}

fn main() {}
