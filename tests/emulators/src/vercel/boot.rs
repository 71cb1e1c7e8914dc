//! A machine becomes a session's host: its user, its working directory, its code.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::Vercel;
use super::error::{ApiError, Result};
use super::images::is_managed;
use super::request::{MEMORY_PER_VCPU, Source};
use super::session::Host;
use super::world::{Origin, Plan};
use crate::machine::{self, Command, End, Limits, Machine, MachineError, MachineSpec};

/// Makes the account `$1` with home `$2` and working directory `$3`, and a `sudo` for scripts that run as root already.
const ACCOUNT: &str = r#"set -e
for file in passwd group; do
  grep -v -e "^$1:" -e '^[^:]*:[^:]*:1000:' /etc/$file > /etc/$file.new || true
  cat /etc/$file.new > /etc/$file
  rm /etc/$file.new
done
echo "$1:x:1000:1000::$2:/bin/bash" >> /etc/passwd
echo "$1:x:1000:" >> /etc/group
mkdir -p "$2" "$3"
chown 1000:1000 "$2" "$3"
mkdir -p /usr/local/bin
cat > /usr/local/bin/sudo
chmod 755 /usr/local/bin/sudo"#;

/// Set-user-id programs have no effect in machines, so this can only go down from root.
const SUDO: &str = r#"#!/bin/sh
user=root
while [ $# -gt 0 ]; do
  case $1 in
    -u) user=$2; shift 2 ;;
    -n | -E | -H) shift ;;
    --) shift; break ;;
    *) break ;;
  esac
done
if [ "$(id -u)" != 0 ]; then
  echo "sudo: the emulator cannot raise a running process to root: ask for sudo in the request" >&2
  exit 1
fi
if [ "$user" = root ]; then exec env "$@"; fi
exec setpriv --reuid "$user" --regid "$(id -g "$user")" --init-groups env "$@"
"#;

/// Fetches a repository into the working directory: url, revision, depth (each but the first may be empty).
const CLONE: &str = r#"set -e
git init -q .
git fetch -q ${3:+--depth="$3"} "$1" "${2:-HEAD}"
git checkout -q FETCH_HEAD"#;

/// Threads and processes of a machine.
const PIDS: u64 = 16_384;

impl Vercel {
    /// Makes what a session of this plan runs on, from the origin given.
    pub(super) async fn boot(&self, plan: &Plan, origin: &Origin, fetch: Option<&Source>) -> Result<Host> {
        let (source, account) = match origin {
            Origin::Snapshot(id) => (machine::Source::Saved(self.world().snapshot(id)?.saved.clone()), None),
            Origin::Runtime(runtime) => {
                let account = ("vercel-sandbox", "/home/vercel-sandbox", "/vercel/sandbox");
                (machine::Source::Image(runtime.clone()), Some(account))
            }
            Origin::Image(image) => {
                let account = is_managed(image).then_some(("ubuntu", "/vercel", "/vercel"));
                (machine::Source::Image(image.clone()), account)
            }
        };
        let limits = Limits {
            memory: Some(u64::from(plan.vcpus * MEMORY_PER_VCPU) << 20),
            cpus: Some(f64::from(plan.vcpus)),
            pids: Some(PIDS),
            ..Limits::default()
        };
        let spec = MachineSpec { limits, offline: plan.policy.isolated, ..MachineSpec::new(source) };
        let machine = self.emulation.machines.create(spec).await.map_err(|error| match error {
            MachineError::NoImage(image) => ApiError::not_found(format!("Image `{image}`")),
            error => ApiError::internal(error),
        })?;
        let settled = self.settle_in(&machine, account, plan, fetch).await;
        match settled {
            Ok(cwd) => Ok(Host { machine, cwd, env: plan.env.clone() }),
            Err(error) => {
                let destroyed = self.emulation.machines.destroy(&machine).await;
                destroyed.map_err(ApiError::internal)?;
                Err(error)
            }
        }
    }

    async fn settle_in(
        &self,
        machine: &Machine,
        account: Option<(&str, &str, &str)>,
        plan: &Plan,
        fetch: Option<&Source>,
    ) -> Result<String> {
        if let Some((user, home, cwd)) = account {
            let made = machine.tool_with(ACCOUNT, &[user, home, cwd], Some(SUDO.as_bytes())).await;
            made.map_err(ApiError::internal)?;
            machine.change_facts(|facts| {
                facts.user = Some(user.to_owned());
                facts.workdir = Some(cwd.to_owned());
            });
            let exists = machine.run(machine.command(["/bin/sh", "-c", ":"]), None).await;
            // Where only root can exist in machines, root it is.
            if !exists.is_ok_and(|done| done.end == End::Exited(0)) {
                machine.change_facts(|facts| facts.user = None);
            }
        }
        let cwd = machine.facts().workdir.unwrap_or_else(|| "/".to_owned());
        machine.change_facts(|facts| facts.workdir = Some(cwd.clone()));
        if let Some(source) = fetch {
            fetch_code(machine, source, &plan.env).await?;
        }
        Ok(cwd)
    }
}

async fn fetch_code(machine: &Machine, source: &Source, env: &BTreeMap<String, String>) -> Result<()> {
    let mut command = match source {
        Source::Git { url, depth, revision, .. } => {
            let depth = depth.map(|depth| depth.to_string()).unwrap_or_default();
            let revision = revision.clone().unwrap_or_default();
            machine.command(["/bin/sh", "-c", CLONE, "clone", url.as_str(), revision.as_str(), depth.as_str()])
        }
        Source::Tarball { url } => {
            machine.command(["/bin/sh", "-c", r#"curl -fsSL "$1" | tar -xzf -"#, "fetch", url.as_str()])
        }
        Source::Snapshot { .. } => return Ok(()),
    };
    command.env.extend(env.clone());
    if let Source::Git { username: Some(username), password: Some(password), .. } = source {
        let basic = STANDARD.encode(format!("{username}:{password}"));
        let config = [
            ("GIT_CONFIG_COUNT", "1".to_owned()),
            ("GIT_CONFIG_KEY_0", "http.extraHeader".to_owned()),
            ("GIT_CONFIG_VALUE_0", format!("Authorization: Basic {basic}")),
        ];
        command.env.extend(config.map(|(name, value)| (name.to_owned(), value)));
    }
    let command = Command { output_cap: 1 << 16, ..command };
    let done = machine.run(command, None).await.map_err(ApiError::internal)?;
    match done.end {
        End::Exited(0) => Ok(()),
        _ => {
            let why = String::from_utf8_lossy(&done.stderr).trim().to_owned();
            Err(ApiError::bad_request(format!("The source could not be fetched: {why}")))
        }
    }
}
