//! Users by `/etc/passwd` and `/etc/group` of the image.

use std::fs;

use crate::refusal::{Answer, Refusal};

/// What a command's process becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Supplementary groups, its own included.
    pub(crate) groups: Vec<u32>,
    /// None for a number without an entry.
    pub(crate) name: Option<String>,
    pub(crate) home: String,
}

/// The account of `user`, a name or a number, with the group `group` instead of its own if that is given. A number without an
/// entry is a user of that group number alone, at home in `/`.
///
/// # Errors
/// 400 `unknown_user`.
pub(crate) fn account(user: &str, group: Option<&str>) -> Answer<Account> {
    // A file that is not there has no entries.
    let read = |path: &str| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
    find(&read("/etc/passwd"), &read("/etc/group"), user, group)
}

fn find(passwd: &str, groups: &str, user: &str, group: Option<&str>) -> Answer<Account> {
    let unknown = |what: &str, name: &str| Refusal::named("unknown_user", format!("no such {what}: {name:?}"));
    let entries = passwd.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, uid, gid, _, home, ..] = fields.as_slice() else { return None };
        Some((*name, uid.parse::<u32>().ok()?, gid.parse::<u32>().ok()?, *home))
    });
    let number = number(user);
    let entry = entries.clone().find(|(name, ..)| *name == user && !user.is_empty());
    let entry = entry.or_else(|| entries.clone().find(|(_, uid, ..)| Some(*uid) == number));
    let mut account = match (entry, number) {
        (Some((name, uid, gid, home)), _) => {
            let home = if home.is_empty() { "/" } else { home };
            Account { uid, gid, groups: Vec::new(), name: Some(name.to_owned()), home: home.to_owned() }
        }
        (None, Some(uid)) => Account { uid, gid: uid, groups: Vec::new(), name: None, home: "/".to_owned() },
        (None, None) => return Err(unknown("user", user)),
    };
    let groups = groups.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, gid, members, ..] = fields.as_slice() else { return None };
        Some((*name, gid.parse::<u32>().ok()?, *members))
    });
    if let Some(wanted) = group {
        let named = groups.clone().find(|(name, ..)| *name == wanted && !wanted.is_empty()).map(|(_, gid, _)| gid);
        account.gid = named.or_else(|| self::number(wanted)).ok_or_else(|| unknown("group", wanted))?;
    }
    let own = account.name.as_deref();
    let member = |(_, gid, members): (&str, u32, &str)| {
        members.split(',').any(|member| Some(member) == own).then_some(gid).filter(|gid| *gid != account.gid)
    };
    account.groups = std::iter::once(account.gid).chain(groups.filter_map(member)).collect();
    Ok(account)
}

/// Digits alone are a number: no sign, and not the one that means "unchanged" to the kernel.
fn number(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten().filter(|number| *number != u32::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nagent:x:1000:100::/home/agent:\nodd\nbare:x:7:7:::\n";
    const GROUP: &str = "root:x:0:\nusers:x:100:agent\ndocker:x:998:other,agent\n";

    #[test]
    fn users_are_found_by_name_and_by_number() {
        let agent = find(PASSWD, GROUP, "agent", None).unwrap();
        assert_eq!((agent.uid, agent.gid, agent.home.as_str()), (1000, 100, "/home/agent"));
        assert_eq!(agent.groups, [100, 998]);
        assert_eq!(find(PASSWD, GROUP, "1000", None).unwrap(), agent);
        assert_eq!(find(PASSWD, GROUP, "bare", None).unwrap().home, "/");
        let other = find(PASSWD, GROUP, "agent", Some("docker")).unwrap();
        assert_eq!((other.gid, other.groups), (998, vec![998, 100]));
        let number = find(PASSWD, GROUP, "4321", None).unwrap();
        assert_eq!((number.uid, number.gid, number.groups, number.name), (4321, 4321, vec![4321], None));
    }

    #[test]
    fn unknown_ones_are_refused() {
        for user in ["nobody-here", "", "-1", "+0", "0x0", "4294967295", "99999999999", "odd"] {
            assert!(find(PASSWD, GROUP, user, None).is_err(), "{user:?}");
        }
        assert!(find(PASSWD, GROUP, "root", Some("nogroup")).is_err());
    }
}
