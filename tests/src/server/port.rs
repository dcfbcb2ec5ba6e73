//! Loopback ports that nobody else takes, also while a server is down between two starts.

use std::{
    io,
    net::{Ipv4Addr, TcpListener, UdpSocket},
    ops::Range,
};

use anyhow::{Context, bail};

/// Below the range from which the kernel picks ports for outgoing connections, so that no client steals the port of a server that
/// is about to be restarted; ten thousand above is still below it, for the bus port of a clustered Redis.
const RANGE: Range<u16> = 12_000..22_000;

/// A TCP port on 127.0.0.1 that belongs to this value until it is dropped.
///
/// The claim is a UDP socket bound to the same number: test processes running side by side see each other's claims, and a killed
/// one leaves nothing behind.
#[derive(Debug)]
pub struct PortLease {
    port: u16,
    _claim: UdpSocket,
}

impl PortLease {
    /// Any free port.
    ///
    /// # Errors
    /// When a thousand tries found none.
    pub fn any() -> anyhow::Result<Self> {
        for _ in 0..1000 {
            if let Ok(lease) = Self::try_claim(fastrand::u16(RANGE)) {
                return Ok(lease);
            }
        }
        bail!("no free port between {} and {}", RANGE.start, RANGE.end)
    }

    /// This very port.
    ///
    /// # Errors
    /// When it is taken.
    pub fn exactly(port: u16) -> anyhow::Result<Self> {
        Self::try_claim(port).with_context(|| format!("port {port} isn't free"))
    }

    /// The number.
    pub fn number(&self) -> u16 {
        self.port
    }

    fn try_claim(port: u16) -> io::Result<Self> {
        let claim = UdpSocket::bind((Ipv4Addr::LOCALHOST, port))?;
        // Closed again at once: it only shows that no stranger listens there.
        TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        Ok(Self { port, _claim: claim })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claimed_port_is_given_once_until_dropped() {
        let lease = PortLease::any().unwrap();
        let port = lease.number();
        assert!(PortLease::exactly(port).is_err());
        drop(lease);
        PortLease::exactly(port).unwrap();
    }

    #[test]
    fn a_port_with_a_listener_is_refused() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert!(PortLease::exactly(listener.local_addr().unwrap().port()).is_err());
    }
}
