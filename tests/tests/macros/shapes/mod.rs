//! Every kind of function that the attribute goes on.
//!
//! | room | what varies |
//! |---|---|
//! | `returns` | the return type |
//! | `parameters` | patterns and names of arguments |
//! | `generics` | type parameters, lifetimes, recursion |
//! | `methods` | receivers, native traits |
//! | `boxed` | `async_trait` and futures by hand |
//! | `surroundings` | other attributes, macros, shadowed names |

mod boxed;
mod generics;
mod methods;
mod parameters;
mod returns;
mod surroundings;

async fn other_work() {
    tokio::task::yield_now().await;
}

#[test]
fn futures_stay_send() {
    const fn is_send<T: Send>(_: &T) {}
    is_send(&returns::result(1));
    is_send(&parameters::leaving(parameters::pay(1), String::new()));
    is_send(&boxed::boxed(1));
    is_send(&generics::recursive(1));
    is_send(&methods::Service::default().owned());
    is_send(&generics::generic(&1, [1]));
}
