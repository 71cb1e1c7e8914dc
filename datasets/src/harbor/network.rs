//! Network policies of a task: what holds at the start, and what each phase changes.
//!
//! Source: Harbor 0.26, task models.

use std::net::IpAddr;

use sandbox_bench_core::NetworkPolicy;

use super::fields::Section;
use crate::problem::{Fault, excerpt};

/// The baseline of `[environment]`.
pub(super) fn baseline(section: &Section<'_>) -> Result<NetworkPolicy, Fault> {
    let explicit = phase(section)?;
    Ok(match (explicit, section.flag("allow_internet")?) {
        (Some(policy), _) => policy,
        (None, Some(false)) => NetworkPolicy::NoNetwork,
        (None, _) => NetworkPolicy::Public,
    })
}

/// The policy that a section states, if it states one.
pub(super) fn phase(section: &Section<'_>) -> Result<Option<NetworkPolicy>, Fault> {
    let hosts = section.texts("allowed_hosts")?;
    let mode = section.text("network_mode")?;
    let policy = match mode.as_deref() {
        None if hosts.is_none() => return Ok(None),
        Some("allowlist") => {
            let hosts = hosts.unwrap_or_default();
            NetworkPolicy::Allowlist(hosts.iter().map(|host| allowed_host(host)).collect::<Result<_, _>>()?)
        }
        Some("public") if hosts.is_none() => NetworkPolicy::Public,
        Some("no-network") if hosts.is_none() => NetworkPolicy::NoNetwork,
        Some("public" | "no-network") | None => {
            return Err(section.wrong("allowed_hosts", "left out, unless network_mode is \"allowlist\""));
        }
        Some(_) => return Err(section.wrong("network_mode", "one of \"public\", \"no-network\", \"allowlist\"")),
    };
    Ok(Some(policy))
}

/// One entry of an allowlist in its normal form: a host name, `*.` and a host name, an address, or a CIDR range.
fn allowed_host(given: &str) -> Result<String, Fault> {
    let host = given.trim().to_ascii_lowercase();
    let host = host.strip_suffix('.').unwrap_or(&host);
    let valid = if let Some((address, bits)) = host.split_once('/') {
        is_range(address, bits)
    } else {
        host.parse::<IpAddr>().is_ok() || is_host_name(host.strip_prefix("*.").unwrap_or(host))
    };
    if valid {
        return Ok(host.to_owned());
    }
    Err(Fault::new(
        format!("allowed host {} is not a host name, address or CIDR range", excerpt(given)),
        "write names without scheme, port and path, and ranges with zero host bits",
    ))
}

fn is_host_name(host: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    // Four numbers are an address, and a wrong one if they come here.
    let looks_like_address = host.chars().all(|c| c.is_ascii_digit() || c == '.');
    host.len() <= 253 && !looks_like_address && host.split('.').all(label)
}

/// True for an address with a prefix length whose other bits are zero.
fn is_range(address: &str, bits: &str) -> bool {
    let Ok(bits) = bits.parse::<u32>() else { return false };
    match address.parse() {
        Ok(IpAddr::V4(address)) => bits <= 32 && address.to_bits().checked_shl(bits).unwrap_or(0) == 0,
        Ok(IpAddr::V6(address)) => bits <= 128 && address.to_bits().checked_shl(bits).unwrap_or(0) == 0,
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse(text: &str) -> Result<NetworkPolicy, Fault> {
        let table: toml::Table = text.parse().unwrap();
        baseline(&Section::root(&table))
    }

    #[test]
    fn the_deprecated_flag_yields_to_the_mode() {
        assert_eq!(parse("").unwrap(), NetworkPolicy::Public);
        assert_eq!(parse("allow_internet = false").unwrap(), NetworkPolicy::NoNetwork);
        assert_eq!(parse("allow_internet = false\nnetwork_mode = 'public'").unwrap(), NetworkPolicy::Public);
        assert_eq!(parse("network_mode = 'allowlist'").unwrap(), NetworkPolicy::Allowlist(vec![]));
        assert!(parse("network_mode = 'some'").is_err());
        assert!(parse("allowed_hosts = ['a.b']").is_err());
        assert!(parse("network_mode = 'public'\nallowed_hosts = []").is_err());
    }

    #[test]
    fn hosts_are_put_in_normal_form_or_refused() {
        for (given, normal) in [
            ("  Example.ORG. ", "example.org"),
            ("*.example.com", "*.example.com"),
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("1.2.3.4", "1.2.3.4"),
            ("::1", "::1"),
            ("fd00::/8", "fd00::/8"),
            ("1.2.3.4/32", "1.2.3.4/32"),
        ] {
            assert_eq!(allowed_host(given).unwrap(), normal);
        }
        for bad in [
            "10.0.0.1/8",
            "http://a.b",
            "a.b:80",
            "a.b/x",
            "-a.b",
            "a..b",
            "",
            "*.1.2.3.4",
            "1.2.3.4.5",
            "a_b",
            "[::1]",
            "fe80::1%eth0",
            "10.0.0.0/33",
            "*",
        ] {
            assert!(allowed_host(bad).is_err(), "{bad}");
        }
    }
}
