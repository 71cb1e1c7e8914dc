//! What a sandbox may reach, in the service's words.

use std::net::IpAddr;

use sandbox_bench_core::NetworkPolicy;
use serde_json::{Value, json};

/// The policy of a request. Host names are matched by the name in the TLS handshake, with `*.` for everything below a name;
/// addresses and ranges by the packets. The vendor's firewall stands outside of the sandbox.
pub(crate) fn policy(policy: &NetworkPolicy) -> Value {
    let entries = match policy {
        NetworkPolicy::Public => return json!({ "mode": "allow-all" }),
        NetworkPolicy::NoNetwork => return json!({ "mode": "deny-all" }),
        NetworkPolicy::Allowlist(entries) if entries.is_empty() => return json!({ "mode": "deny-all" }),
        NetworkPolicy::Allowlist(entries) => entries,
    };
    let (ranges, hosts): (Vec<_>, Vec<_>) =
        entries.iter().map(|entry| (range(entry), entry)).partition(|(r, _)| r.is_some());
    let ranges: Vec<String> = ranges.into_iter().filter_map(|(range, _)| range).collect();
    let hosts: Vec<&String> = hosts.into_iter().map(|(_, host)| host).collect();
    let mut out = json!({ "allow": hosts });
    if !ranges.is_empty() {
        out["subnets"] = json!({ "allow": ranges });
    }
    out
}

/// The range that an entry names; none if it is a host name.
fn range(entry: &str) -> Option<String> {
    let (address, bits) = match entry.split_once('/') {
        Some((address, bits)) => (address, Some(bits.parse::<u8>().ok()?)),
        None => (entry, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let bits = bits.unwrap_or(if address.is_ipv4() { 32 } else { 128 });
    Some(format!("{address}/{bits}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_addresses_go_where_each_belongs() {
        assert_eq!(policy(&NetworkPolicy::Public), json!({"mode": "allow-all"}));
        assert_eq!(policy(&NetworkPolicy::NoNetwork), json!({"mode": "deny-all"}));
        assert_eq!(policy(&NetworkPolicy::Allowlist(vec![])), json!({"mode": "deny-all"}), "nothing listed is nothing");
        let list = ["example.com", "10.0.0.0/8", "192.0.2.1", "*.example.org", "2001:db8::/32"].map(str::to_owned);
        assert_eq!(
            policy(&NetworkPolicy::Allowlist(list.to_vec())),
            json!({"allow": ["example.com", "*.example.org"],
                "subnets": {"allow": ["10.0.0.0/8", "192.0.2.1/32", "2001:db8::/32"]}})
        );
        let hosts = NetworkPolicy::Allowlist(vec!["example.com".into()]);
        assert_eq!(policy(&hosts), json!({"allow": ["example.com"]}));
    }
}
