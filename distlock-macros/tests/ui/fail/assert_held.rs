//! What `assert_held!` says about a key that is none.
use distlock::assert_held;

struct Order {
    id: u64,
}

impl Order {
    fn check(&self) {
        assert_held!("order:<self.number>");
        assert_held!("order:<Self>");
    }
}

fn main() {
    let order = Order { id: 1 };
    assert_held!();
    assert_held!(42);
    assert_held!("");
    assert_held!("order:<order.id");
    assert_held!("<order.id><order.id>");
    assert_held!("order:<oder.id>");
    assert_held!("order:<order>");
    assert_held!("order:<order.id>", "stock");
    assert_held!(order.id);
    assert_held!("order:{id}");
    assert_held!("order:{order.id}");
    assert_held!("<order.id>:{}");
    // These are right.
    assert_held!("{orders}:<order.id>");
    assert_held!(String::from("{orders}:all"));
}
