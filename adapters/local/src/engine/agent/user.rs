//! Users of a sandbox, looked up in its own `/etc/passwd` and `/etc/group`.

use std::fs::File;
use std::io::Read;

use crate::engine::job::User;

/// More of a user database than this is not read: a sandbox's files are not to be trusted.
const DATABASE_LIMIT: u64 = 1 << 20;

/// The identity under which a command runs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) groups: Vec<u32>,
    pub(super) home: String,
}

/// Finds the identity, or says what is missing.
pub(super) fn resolve(user: &User) -> Result<Identity, String> {
    find(user, &database("/etc/passwd"), &database("/etc/group"))
}

fn database(path: &str) -> String {
    let mut text = Vec::new();
    // An image without a user database is fine as long as ids are numeric.
    if let Ok(file) = File::open(path) {
        let _ = file.take(DATABASE_LIMIT).read_to_end(&mut text);
    }
    String::from_utf8_lossy(&text).into_owned()
}

fn find(user: &User, passwd: &str, groups: &str) -> Result<Identity, String> {
    let (name, group) = match user {
        User::Root => ("0".to_owned(), None),
        User::Ids { uid, gid } => (uid.to_string(), Some(gid.to_string())),
        User::Name(name) => match name.split_once(':') {
            Some((name, group)) => (name.to_owned(), Some(group.to_owned())),
            None => (name.clone(), None),
        },
    };
    let mut entry = passwd.lines().filter_map(Account::parse).find(|account| account.name == name);
    if entry.is_none()
        && let Ok(uid) = name.parse::<u32>()
    {
        entry = passwd.lines().filter_map(Account::parse).find(|account| account.uid == uid).or(Some(Account {
            name: "",
            uid,
            gid: if uid == 0 { 0 } else { uid },
            home: "/",
        }));
    }
    let account = entry.ok_or("not in the sandbox's /etc/passwd")?;
    let gid = match &group {
        None => account.gid,
        Some(group) => group
            .parse()
            .ok()
            .or_else(|| {
                let mut found = groups.lines().filter_map(Group::parse);
                found.find(|g| g.name == group).map(|g| g.gid)
            })
            .ok_or_else(|| format!("group {group} is not in the sandbox's /etc/group"))?,
    };
    let supplementary = groups
        .lines()
        .filter_map(Group::parse)
        .filter(|g| group.is_none() && g.members.split(',').any(|member| member == account.name))
        .map(|g| g.gid)
        .collect();
    Ok(Identity { uid: account.uid, gid, groups: supplementary, home: account.home.to_owned() })
}

/// `name:password:uid:gid:comment:home:shell`
struct Account<'a> {
    name: &'a str,
    uid: u32,
    gid: u32,
    home: &'a str,
}

impl<'a> Account<'a> {
    fn parse(line: &'a str) -> Option<Account<'a>> {
        let mut fields = line.split(':');
        let name = fields.next()?;
        fields.next()?;
        let uid = fields.next()?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        fields.next()?;
        let home = fields.next().filter(|home| home.starts_with('/'));
        Some(Account { name, uid, gid, home: home.unwrap_or("/") })
    }
}

/// `name:password:gid:member,member`
struct Group<'a> {
    name: &'a str,
    gid: u32,
    members: &'a str,
}

impl<'a> Group<'a> {
    fn parse(line: &'a str) -> Option<Group<'a>> {
        let mut fields = line.split(':');
        let name = fields.next()?;
        fields.next()?;
        let gid = fields.next()?.parse().ok()?;
        Some(Group { name, gid, members: fields.next().unwrap_or_default() })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nbroken line\nagent:x:1000:1001::/home/agent:/bin/sh\n";
    const GROUPS: &str = "root:x:0:\nagent:x:1001:\nstaff:x:50:agent,other\nwheel:x:10:other\n";

    fn look(user: User) -> Result<(u32, u32, Vec<u32>, String), String> {
        find(&user, PASSWD, GROUPS).map(|i| (i.uid, i.gid, i.groups, i.home))
    }

    #[test]
    fn names_bring_their_groups_and_home() {
        let agent = (1000, 1001, vec![50], "/home/agent".to_owned());
        assert_eq!(look(User::Name("agent".into())).unwrap(), agent);
        assert_eq!(look(User::Name("1000".into())).unwrap(), agent);
        assert_eq!(look(User::Root).unwrap(), (0, 0, vec![], "/root".into()));
        assert_eq!(look(User::Name("agent:wheel".into())).unwrap(), (1000, 10, vec![], "/home/agent".into()));
    }

    #[test]
    fn unknown_numbers_are_taken_and_unknown_names_refused() {
        let ids = User::Ids { uid: 7, gid: 8 };
        assert_eq!(look(ids).unwrap(), (7, 8, vec![], "/".into()));
        assert!(look(User::Name("nobody-here".into())).is_err());
        assert!(look(User::Name("agent:nogroup".into())).is_err());
    }

    proptest! {
        #[test]
        fn any_database_is_survived(passwd in ".{0,200}", groups in ".{0,200}", name in ".{0,20}") {
            let _ = find(&User::Name(name), &passwd, &groups);
        }
    }
}
