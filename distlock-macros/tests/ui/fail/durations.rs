//! Literal durations are checked where they stand.
use distlock::{LockError, distributed_lock};

macro_rules! locked {
    ($($argument:ident = $value:expr;)*) => {
        $(const _: () = {
            #[distributed_lock(key = "order", $argument = $value)]
            async fn function() -> Result<(), LockError> {
                Ok(())
            }
        };)*
    };
}

locked! {
    ttl = "30";
    ttl = 30;
    ttl = 1.5;
    ttl = "soon";
    ttl = "";
    ttl = "0s";
    ttl = "99ms";
    ttl = "-5s";
    ttl = -5;
    ttl = "25h";
    ttl = "99999999999999999999s";
    wait = "0s";
    wait = "never";
    wait = none;
    wait = forever;
    wait = 5;
    max_hold = "0s";
    max_hold = "long";
    hold_at_least = "0s";
    hold_at_least = "25h";
}

#[distributed_lock(key = "order", max_hold = "1s", hold_at_least = "2s")]
async fn at_least_more_than_at_most() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order", ttl = "1s", hold_at_least = "2s")]
async fn at_least_more_than_the_ttl() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order", hold_at_least = "1m")]
async fn at_least_more_than_the_usual_ttl() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
