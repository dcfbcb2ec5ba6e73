//! Real networks are parted: the leader and a holder's client on one side, the majority on the other.

mod etcd;
mod parted;
mod zookeeper;
