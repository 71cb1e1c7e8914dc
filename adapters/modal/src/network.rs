//! What a sandbox may reach, as the service wants it said.

use std::net::IpAddr;

use sandbox_bench_core::{Error, NetworkPolicy, Result};

use crate::proto::client::NetworkAccess;
use crate::proto::client::network_access::NetworkAccessType;

/// The policy on the wire.
///
/// # Errors
/// `InvalidRequest` for what is neither an address, nor a range, nor a name.
pub(crate) fn access(policy: &NetworkPolicy) -> Result<NetworkAccess> {
    let of = |kind: NetworkAccessType| NetworkAccess { network_access_type: kind.into(), ..NetworkAccess::default() };
    match policy {
        NetworkPolicy::Public => Ok(of(NetworkAccessType::Open)),
        NetworkPolicy::NoNetwork => Ok(of(NetworkAccessType::Blocked)),
        NetworkPolicy::Allowlist(hosts) => {
            let mut access = of(NetworkAccessType::Allowlist);
            for host in hosts {
                match host.parse::<IpAddr>() {
                    Ok(address @ IpAddr::V4(_)) => access.allowed_cidrs.push(format!("{address}/32")),
                    Ok(address @ IpAddr::V6(_)) => access.allowed_cidrs.push(format!("{address}/128")),
                    Err(_) if host.contains('/') => access.allowed_cidrs.push(host.clone()),
                    Err(_) if host.trim().is_empty() || host.contains([':', ',', ' ']) => {
                        return Err(Error::invalid(format!("the network cannot be opened for {host:?}"))
                            .hint("name addresses, ranges, or domains"));
                    }
                    Err(_) => access.allowed_domains.push(host.clone()),
                }
            }
            Ok(access)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn addresses_ranges_and_names_are_told_apart() {
        let hosts = ["10.0.0.1", "10.1.0.0/16", "example.com", "*.example.org", "2001:db8::1"].map(str::to_owned);
        let access = access(&NetworkPolicy::Allowlist(hosts.to_vec())).unwrap();
        assert_eq!(access.network_access_type(), NetworkAccessType::Allowlist);
        assert_eq!(access.allowed_cidrs, ["10.0.0.1/32", "10.1.0.0/16", "2001:db8::1/128"]);
        assert_eq!(access.allowed_domains, ["example.com", "*.example.org"]);
        assert!(super::access(&NetworkPolicy::Allowlist(vec!["a:80".into()])).is_err());
    }

    #[test]
    fn nothing_is_blocked_and_an_empty_list_opens_nothing() {
        let kind = |policy| access(&policy).unwrap().network_access_type();
        assert_eq!(kind(NetworkPolicy::Public), NetworkAccessType::Open);
        assert_eq!(kind(NetworkPolicy::NoNetwork), NetworkAccessType::Blocked);
        assert_eq!(kind(NetworkPolicy::Allowlist(Vec::new())), NetworkAccessType::Allowlist);
    }
}
